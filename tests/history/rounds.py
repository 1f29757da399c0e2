"""Rounds: clients work on one store while the broker is killed, killed during its start, or stopped, and restarted.

Clients live through all rounds; sometimes one of them closes its consumers and rejoins. One thread.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from firearrow._native.wire.codes import RequestCode
from tests.history import delivery_rules, sending_rules
from tests.history.checker import allowed, check
from tests.history.clients import Client, await_all
from tests.history.events import Event
from tests.history.history import History
from tests.history.killing import KilledBroker
from tests.history.observer import Observer
from tests.history.pair import PromotedPair
from tests.history.violation import Violation
from tests.support.requests import topic_ext

QUEUES = {"Plain": 4, "Later": 1}
SETTINGS = {
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": "100",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "200",
    "transactionCheckMax": "1000000",
    "reviveInterval": "100",
    "mappedFileSizeCommitLog": "4194304",
    "mappedFileSizeConsumeQueue": "20000",
    "brokerName": "broker-a",
}
ORDER_S = 90.0
STEP_S = 0.25
SHIPPED_S = 0.3
"""A slave has a one-way commit after this time."""
JUDGED_EACH = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """`pace_s`: the longest pause of a sender between two messages. `settings`: more of the broker's."""

    languages: tuple[str, ...] = ("python",)
    flush: str = "ASYNC_FLUSH"
    seed: int = 1
    pace_s: float = 0.03
    longest_s: float = 1.5
    settle_s: float = 80.0
    settings: dict[str, str] = field(default_factory=dict)
    pair: bool = False
    """The broker is a master with a slave, which is promoted when the master has ended."""


class Rounds:
    """A context: clients and broker end with it. `home` keeps store, histories and logs."""

    def __init__(self, home: Path, plan: Plan) -> None:
        self.plan = plan
        self.history = History()
        self.ends: Counter[str] = Counter()
        self._draw = random.Random(plan.seed)
        self._observer = Observer(QUEUES)
        self._stack = ExitStack()
        self._observed = self._stack.enter_context((home / "observer.jsonl").open("wb"))
        settings = SETTINGS | {"flushDiskType": plan.flush} | plan.settings
        self._broker = self._stack.enter_context(
            PromotedPair(home / "pair", settings) if plan.pair else KilledBroker(home / "store", settings)
        )
        try:
            self._begin(home)
        except BaseException:
            self._stack.close()
            raise

    def _begin(self, home: Path) -> None:
        with self._broker.connect() as connection:
            for topic, queues in QUEUES.items():
                answer = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues))
                assert answer.code == 0, answer.remark
        self._clients = [
            self._stack.enter_context(
                Client(language, home, self._broker.name_server, self.plan.seed, self.plan.pace_s)
            )
            for language in self.plan.languages
        ]
        self._await("start")
        self._order("load")

    def run(self, meanwhile: Callable[[Path], None] | None = None) -> str:
        """One round; how the broker ended. `meanwhile` gets the store while no broker uses it."""
        time.sleep(self._draw.uniform(0, self.plan.longest_s))
        with self._broker.connect() as connection:
            self._add(self._observer.offsets(connection, self._groups()))
        if self.plan.pair:
            time.sleep(SHIPPED_S)
        end = self._draw.choices(("killed", "killed while starting", "stopped"), (6, 2, 1))[0]
        if end == "stopped":
            assert self._broker.stop(30) == 0, "a clean stop failed"
        else:
            self._broker.kill()
        self._add([{"event": "stopped" if end == "stopped" else "killed", "at": time.time_ns()}])
        if meanwhile is not None:
            meanwhile(self._broker.store)
        if end == "killed while starting":
            self._broker.start_and_kill(self._draw.uniform(0.02, 0.6))
        self._broker.start()
        self.ends[end] += 1
        self._look()
        if self._draw.random() < 0.25:
            self._order("rejoin", [self._draw.choice(self._clients)])
        return end

    def settle(self) -> list[Violation]:
        """Senders rest; consumers get everything; then everything is read and checked."""
        self._order("rest")
        deadline = time.monotonic() + self.plan.settle_s
        self._look()
        while self._missing() and time.monotonic() < deadline:
            time.sleep(STEP_S)
            self._look()
        self._look(whole=True)
        return check(self.history)

    def judge(self) -> list[Violation]:
        """What is wrong already, while clients are at work."""
        return check(self.history, settled=False)

    def summary(self) -> dict[str, object]:
        """Counts of everything, for people and for JSON."""
        acknowledged = sum(attempt.acknowledged for attempt in self.history.attempts.values())
        return {
            "rounds": self.ends.total(),
            "ends": dict(self.ends),
            "attempts": len(self.history.attempts),
            "acknowledged": acknowledged,
            "stored": len(self.history.stored),
            "deliveries": len(self.history.deliveries),
            "acknowledged pops": len(self.history.acked),
            "commits answered": self.history.counts["committed"],
            "offsets looked at": self.history.counts["offset"],
            "groups": len(self.history.groups),
            "allowed": allowed(self.history),
        }

    def _missing(self) -> bool:
        rules = sending_rules.lost, delivery_rules.undelivered
        return any(True for rule in rules for _ in rule(self.history, True))

    def _look(self, whole: bool = False) -> None:
        """What the observer reads, then the clients' events until now: more than the observer can have read of them."""
        with self._broker.connect() as connection:
            self._add([{"event": "started", "at": time.time_ns()}])
            self._add(self._observer.offsets(connection, self._groups()))
            self._add(self._observer.read(connection, whole))
        for client in self._clients:
            for event in client.news():
                self.history.add(client.name, event)

    def _groups(self) -> dict[str, str]:
        return {member.group: member.topic for member in self.history.groups.values()}

    def _add(self, events: Iterable[Event]) -> None:
        for event in events:
            self._observed.write(orjson.dumps(event) + b"\n")
            self.history.add("observer", event)
        self._observed.flush()

    def _order(self, what: str, clients: list[Client] | None = None) -> None:
        for client in clients or self._clients:
            client.order(what)
        self._await(what, clients)

    def _await(self, what: str, clients: list[Client] | None = None) -> None:
        for source, event in await_all(clients or self._clients, what, ORDER_S):
            self.history.add(source, event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, value, trace)


def run_rounds(
    home: Path, plan: Plan, count: int, log: Callable[[str], None], within_s: float = math.inf
) -> tuple[list[Violation], dict[str, object]]:
    """`count` rounds, or as many as begin in time; ended early by a violation. Violations and summary."""
    deadline = time.monotonic() + within_s
    with Rounds(home, plan) as rounds:
        for number in range(1, count + 1):
            if time.monotonic() > deadline:
                break
            end = rounds.run()
            found = rounds.judge() if number % JUDGED_EACH == 0 else []
            log(f"round {number}: {end}, {len(rounds.history.attempts)} sends, {len(found)} violations")
            if found:
                return found, rounds.summary()
        return rounds.settle(), rounds.summary()
