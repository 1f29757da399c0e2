"""BackgroundClient: a well-behaved client during an attack. It sends, pulls what it sent, and measures each call.

A separate thread and connections. Acknowledged messages are read again at the end: none may be missing or out of order.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, read_queue, records, send

REST_S = 0.002
GREET_EVERY = 25
"""Rounds between two checks whether a new connection is served."""


@dataclass
class BackgroundClient:
    address: tuple[str, int]
    worked_s: Callable[[], float] = lambda: 0.0
    """How much the broker has worked so far: on a busy machine it waits for other processes itself."""
    topic: str = "Background"
    open_connection: Callable[[tuple[str, int]], ClientSocket] = ClientSocket
    sent: int = 0
    waits_s: list[float] = field(default_factory=list)
    works_s: list[float] = field(default_factory=list)
    """How much the broker worked during the call, for us and for others."""
    greeting_s: list[float] = field(default_factory=list)
    """How long a new connection took until its first response."""

    def __post_init__(self) -> None:
        self._connection = self.open_connection(self.address)
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def mark(self) -> int:
        """An index into `waits_s`, for `worst_s`."""
        return len(self.waits_s)

    def wait_for_rounds(self, count: int, within_s: float = 30.0) -> None:
        """Until it was served `count` more times. TimeoutError, or the error that stopped it."""
        goal, deadline = self.mark() + count, time.monotonic() + within_s
        while self.mark() < goal:
            if self._fault is not None:
                raise self._fault
            if time.monotonic() > deadline:
                raise TimeoutError(f"the background client was not served for {within_s:g} s")
            self._stop.wait(REST_S)

    def worst_s(self, since: int) -> float:
        return max(self.waits_s[since:], default=0.0)

    def worst_work_s(self, since: int) -> float:
        return max(self.works_s[since:], default=0.0)

    def usual_s(self, since: int) -> float:
        """The 99th percentile."""
        waits = sorted(self.waits_s[since:])
        return waits[len(waits) * 99 // 100] if waits else 0.0

    def stop(self) -> None:
        """Read everything again. AssertionError if an acknowledged message is missing."""
        self._stop.set()
        self._thread.join()
        try:
            if self._fault is not None:
                raise self._fault
            found = [record.body for record in read_queue(self._connection, self.topic, 0)]
            assert found == [b"%d" % n for n in range(self.sent)]
        finally:
            self._connection.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(REST_S):
                self._round()
                if self.sent % GREET_EVERY == 0:
                    begun = time.monotonic()
                    with self.open_connection(self.address) as fresh:
                        assert pull(fresh, self.topic, self.sent - 1).code == 0
                    self.greeting_s.append(time.monotonic() - begun)
        except BaseException as fault:
            self._fault = fault

    def _round(self) -> None:
        begun, worked = time.monotonic(), self.worked_s()
        answer = send(self._connection, self.topic, b"%d" % self.sent)
        assert answer.code == 0, answer.remark
        got = pull(self._connection, self.topic, self.sent)
        assert got.code == 0, got.remark
        assert next(records(got.body)).body == b"%d" % self.sent
        self.works_s.append(self.worked_s() - worked)
        self.waits_s.append(time.monotonic() - begun)
        self.sent += 1
