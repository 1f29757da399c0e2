"""Witness: another client that is served all the while; knows the longest it had to wait."""

import threading
import time
from types import TracebackType

from tests.process.requests import send
from tests.process.running import Broker


class Witness:
    def __init__(self, broker: Broker) -> None:
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
                answer = send(self._connection, "Witness", b"served")
                self.worst_s = max(self.worst_s, time.monotonic() - begun)
                assert answer.code == 0, answer.remark
                self.sent += 1
        except BaseException as fault:
            self._fault = fault

    def __enter__(self) -> "Witness":
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
