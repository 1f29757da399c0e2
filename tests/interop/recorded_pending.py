"""RecordedPending: what Apache left pending in a recorded store; each broker after it may deliver a part of it."""

import time
from collections import Counter

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from tests.integration.test_pop_golden import PENDING, RETRY
from tests.integration.test_transactions import HALF
from tests.interop.contents import table
from tests.interop.pending_work import PendingWork, await_bodies, bodies
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages

LONG_DUE_MS = 60_000


class RecordedPending(PendingWork):
    """Popped messages, delays, timers; open transactions are in `halves`: the producer that answers for ours answers
    for them, too. Times are those of the recording, so that all or all but one timer are due; that one was set for
    longer than the wheel is, so that a broker may have stored it again before."""

    def __init__(self) -> None:
        super().__init__("inherited")
        self.halves: set[bytes] = set()
        self._delays: list[bytes] = []
        self._timers: list[Record] = []

    def leave(self, client: ClientSocket) -> None:
        """Nothing: it is already there."""
        self.halves = {one.body for one in _with_keys(client, HALF, 0, "pending")}
        self._delays = [
            one.body for one in _with_keys(client, "SCHEDULE_TOPIC_XXXX", 17, "level18", "level99")
        ]
        stored = _with_keys(client, "rmq_sys_wheel_timer", 0, "hour", "days")
        self._timers = list({one.body: one for one in stored}.values())
        assert (len(self.halves), len(self._delays), len(self._timers)) == (1, 2, 2)

    def finish(self, client: ClientSocket) -> None:
        await_bodies(client, RETRY, PENDING)
        await_bodies(client, "GoldenDelay", self._delays)
        await_bodies(
            client, "GoldenTimer", [one.body for one in self._timers if _due_for_ms(one) > LONG_DUE_MS]
        )

    def verify(self, client: ClientSocket) -> None:
        assert sorted(bodies(client, RETRY)) == PENDING
        for topic, wanted in (("GoldenDelay", self._delays), ("GoldenTx", self.halves)):
            found = Counter(bodies(client, topic))
            assert [found[body] for body in wanted] == [1] * len(wanted), topic
        timers = Counter(bodies(client, "GoldenTimer"))
        for one in self._timers:
            due_for_ms = _due_for_ms(one)
            assert timers[one.body] <= 1
            assert abs(due_for_ms) < LONG_DUE_MS or timers[one.body] == (due_for_ms > 0)

    def timers_waiting(self, client: ClientSocket) -> int:
        """How many have not arrived."""
        come = set(bodies(client, "GoldenTimer"))
        return sum(one.body not in come for one in self._timers)


def _with_keys(client: ClientSocket, topic: str, queue: int, *keys: str) -> list[Record]:
    return [one for one in read_messages(client, topic, queue) if one.properties.get("KEYS") in keys]


def _due_for_ms(timer: Record) -> int:
    return time.time_ns() // 1_000_000 - int(timer.properties["TIMER_OUT_MS"])


def timers_counted(client: ClientSocket, topic: str) -> int:
    """The broker's count of timers that wait for the topic."""
    counts = table(client, RequestCode.GET_TIMER_METRICS, "timingCount")
    return int(counts.get(topic, {"count": 0})["count"])
