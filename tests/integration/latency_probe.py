"""LatencyProbe: a client that sends in the background and records its longest wait."""

import threading
import time
from types import TracebackType

from tests.support.broker_process import BrokerProcess
from tests.support.requests import send


class LatencyProbe:
    def __init__(self, broker: BrokerProcess) -> None:
        self._connection = broker.connect()
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.worst_s = 0.0

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.002):
                begun = time.monotonic()
                answer = send(self._connection, "LatencyProbe", b"served")
                self.worst_s = max(self.worst_s, time.monotonic() - begun)
                assert answer.code == 0, answer.remark
                self.sent += 1
        except BaseException as fault:
            self._fault = fault

    def __enter__(self) -> "LatencyProbe":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()
        if self._fault is not None and value is None:
            raise self._fault
