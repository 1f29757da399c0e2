"""Each recorded conversation of Apache's clients with its proxy is replayed against our broker; its answers agree,
except for the differences named in docs/PROTOCOL.md."""

import copy
import functools
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.grpc import brokers, recordings
from tests.grpc.brokers import NEED_USERS, ROOT, SETTINGS, WITH_USERS
from tests.grpc.comparison import Answer, Difference, compared
from tests.grpc.differences import OF_LOAD, RULES, name_of
from tests.grpc.replay import Replay
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

PROTOCOL = Path(__file__).resolve().parents[2] / "docs/PROTOCOL.md"
RECORDINGS = 80
AT_ONCE = 40
EQUAL = 3400
"""How many answers must agree in every value."""
OF_A_KIND, KINDS = 3, 100
"""How many answers of each kind are spoiled; minimum number of kinds."""
WRONG = "wrong"
ZERO = ("offset", "queue_id")
"""Numbers that are 0 where they are missing."""


@dataclass
class Replays:
    done: list[Replay]
    seconds: float

    @property
    def differences(self) -> list[Difference]:
        return [difference for each in self.done for difference in each.differences]


@functools.cache
def replayed() -> Replays:
    """All recordings, once, against two brokers: one of them has users."""
    started, names = time.monotonic(), recordings.names()
    plain, users = [name for name in names if name not in NEED_USERS], list(NEED_USERS)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "users"
        brokers.add_users(store)
        with (
            BrokerProcess(Path(folder) / "plain", *brokers.arguments(SETTINGS)) as first,
            BrokerProcess(store, *brokers.arguments(SETTINGS | WITH_USERS)) as second,
        ):
            with first.connect() as connection:
                for name in plain:
                    brokers.prepare(connection, name)
            with ClientSocket(second.address, keys=ROOT) as connection:
                for name in users:
                    brokers.prepare(connection, name)
            replays = [Replay(first.address, name) for name in plain]
            replays += [Replay(second.address, name) for name in users]
            with first.connect() as connection:
                for each in replays:
                    each.send_by_remoting(connection)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(Replay.run, replays))
            for broker in (first, second):
                assert broker.stop() == 0
                assert "Traceback" not in broker.log.read_text()
    return Replays(replays, time.monotonic() - started)


def test_every_difference_has_a_name() -> None:
    unnamed = [each for each in replayed().differences if name_of(each) is None]
    assert not unnamed, "\n".join(map(str, unnamed[:200]))


def test_every_name_still_occurs() -> None:
    assert {name_of(each) for each in replayed().differences} | OF_LOAD == set(RULES)


def test_every_answer_is_compared_and_most_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    found = replayed()
    equal = sum(each.equal for each in found.done)
    counts = Counter(name_of(each) for each in found.differences)
    total = sum(each.compared for each in found.done)
    with capsys.disabled():
        print(f"\n{total} answers and ends compared in {found.seconds:.0f} s, {equal} equal")
        for name, count in counts.most_common():
            print(f"{count:6} times: {name}")
    recorded = sum(event.is_answer for name in recordings.names() for event in recordings.events(name))
    assert len(found.done) == RECORDINGS
    assert total == recorded
    assert equal >= EQUAL


def test_a_wrong_answer_is_detected() -> None:
    """No rule is so wide that a wrong value, or one less or more, matches it. Statuses with different codes are one
    difference, whose rules name both codes."""
    seen: Counter[tuple[str, str]] = Counter()
    for replay in replayed().done:
        for rpc, request, theirs, ours in replay.pairs:
            if any(path[-1] == "status" for path, _, _ in compared(theirs, ours)):
                continue
            for what, spoiled in spoiled_of(ours):
                seen[rpc, what] += 1
                if seen[rpc, what] <= OF_A_KIND:
                    found = [
                        Difference(replay.name, rpc, request, theirs, spoiled, *each)
                        for each in compared(theirs, spoiled)
                    ]
                    assert None in {name_of(each) for each in found}, (replay.name, rpc, what)
    assert len(seen) > KINDS


def spoiled_of(answer: Answer) -> Iterator[tuple[str, Answer]]:
    """The answer without each of its values, and with another one in its place."""
    for path in _paths(answer):
        what = ".".join(str(part) for part in path if not isinstance(part, int))
        for change in ("no ", "") if path[-1] not in ZERO else ("",):
            spoiled = copy.deepcopy(answer)
            holder: Any = functools.reduce(lambda value, part: value[part], path[:-1], spoiled)
            if change:
                del holder[path[-1]]
            else:
                holder[path[-1]] = WRONG
            yield change + what, spoiled


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(each, (*path, key))
    else:
        yield path


def test_protocol_lists_the_same_names() -> None:
    section = PROTOCOL.read_text("utf-8").split("\n### Named differences from Apache's proxy")[1]
    assert re.findall(r"^- \*\*(.+?)\*\*:", section.split("\n#")[0], re.MULTILINE) == list(RULES)
