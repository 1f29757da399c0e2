"""Everything that clients sent to a live Apache RocketMQ is sent to our process; its responses agree, except for the
differences named in docs/PROTOCOL.md."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.command import RemotingCommand
from tests.wire_golden.comparison import Comparison
from tests.wire_golden.conversation import events
from tests.wire_golden.differences import RULES, name_of
from tests.wire_golden.player import Exchange
from tests.wire_golden.replay import replayed

PROTOCOL = Path(__file__).resolve().parents[2] / "docs/PROTOCOL.md"
COMPARED, EQUAL = 2458, 1130
"""All responses and requests of Apache in the recording; how many must agree in every value."""
WRONG_CODE, OF_A_KIND, KINDS = 2, 3, 100
"""What no response has; how many of each kind are spoiled; minimum number of kinds."""

CUT_SHORT = ("consumer-push-sql-wrong", "mqadmin-brokerStatus")
"""The client disconnected before its heartbeat was answered; the README of the recording has the other one."""
REFUSALS = (1, 3, 17, 24)
SURPLUS = 13


def test_every_difference_has_a_name() -> None:
    unnamed = replayed().unnamed()
    assert not unnamed, "\n".join(map(str, unnamed[:40]))


def test_every_name_still_occurs() -> None:
    assert set(RULES) == set(replayed().counts())


def test_every_frame_is_compared_and_most_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    replay = replayed()
    with capsys.disabled():
        print(f"\n{len(replay.exchanges)} frames compared in {replay.seconds:.0f} s, {replay.equal} equal")
        for name, count in sorted(replay.counts().items(), key=lambda one: -one[1]):
            print(f"{count:6} frames with: {name}")
    from_server = sum(not event.to_server for event in events())
    assert len(replay.exchanges) == from_server == COMPARED
    assert replay.equal >= EQUAL


def test_nothing_is_sent_that_apache_did_not_send() -> None:
    """Except refusals of pulls that Apache held, and where the recording ends before Apache's response."""
    allowed = [
        event.where[0] in CUT_SHORT or (left.code in REFUSALS and left.is_response)
        for event, left in replayed().surplus
    ]
    assert all(allowed), replayed().surplus
    assert len(allowed) <= SURPLUS


def test_the_language_of_every_frame_is_not_java() -> None:
    said = {one.ours.language for one, _ in replayed().exchanges if one.ours is not None}
    assert said == {3}


def test_a_wrong_response_is_detected() -> None:
    """No rule is so wide that a wrong code, a wrong field or half a body matches it."""
    replay = replayed()
    compare = Comparison(replay.translation)
    seen: Counter[tuple[object, int, str]] = Counter()
    for exchange, _ in replay.exchanges:
        for what, wrong in spoiled(exchange):
            kind = exchange.theirs.line.get("answers"), exchange.theirs.command.code, what
            seen[kind] += 1
            if seen[kind] <= OF_A_KIND:
                found = compare(Exchange(exchange.theirs, wrong, exchange.request))
                assert None in {name_of(one, replay.translation) for one in found}, (
                    str(exchange.theirs),
                    what,
                )
    assert len(seen) > KINDS


def spoiled(exchange: Exchange) -> Iterator[tuple[str, RemotingCommand]]:
    ours, theirs = exchange.ours, exchange.theirs.command
    if ours is None:
        return
    yield "code", ours.answer(WRONG_CODE, ours.remark, ours.ext, ours.body)
    if ours.code != theirs.code:
        return
    for key in ours.ext:
        yield key, ours.answer(ours.code, ours.remark, ours.ext | {key: "-7"}, ours.body)
        rest = {other: value for other, value in ours.ext.items() if other != key}
        yield f"no {key}", ours.answer(ours.code, ours.remark, rest, ours.body)
    if theirs.body and exchange.theirs.whole:
        yield "no body", ours.answer(ours.code, ours.remark, ours.ext)


def test_protocol_lists_the_same_names() -> None:
    section = PROTOCOL.read_text("utf-8").split("\n## Named differences")[1].split("\n## ")[0]
    assert re.findall(r"^- \*\*(.+?)\*\*:", section, re.MULTILINE) == list(RULES)
