"""GrpcBackgroundClient: a well-behaved client of gRPC during an attack, beside the one of remoting. It sends a message
from time to time, and measures each call.

A separate thread and connection.
"""

import threading
import time
from collections.abc import Callable

import grpc

from firearrow.broker.base.peer import Address
from firearrow.broker.grpc.messages import CODES
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import GrpcCaller, create_topic, message, signature
from tests.support.requests import read_queue

TOPIC = "GrpcBackground"
REST_S = 0.01
CALL_S = 30.0


class GrpcBackgroundClient:
    """`keys`: the user as whom it logs in; `authority`: whose servers it trusts, if it speaks TLS. `worked_s()`: how
    much the broker has worked so far."""

    def __init__(
        self,
        address: Address,
        worked_s: Callable[[], float],
        open_connection: Callable[[Address], ClientSocket],
        keys: tuple[str, str] | None,
        authority: bytes | None,
    ) -> None:
        self._address = address
        self._open_connection = open_connection
        self._worked_s = worked_s
        with open_connection(address) as connection:
            create_topic(connection, TOPIC, queues=1)
        credentials = None if authority is None else grpc.ssl_channel_credentials(authority)
        self._caller = GrpcCaller(
            address, "background", [] if keys is None else signature(*keys), credentials
        )
        self._sent = 0
        self.waits_s: list[float] = []
        self.works_s: list[float] = []
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def mark(self) -> int:
        """An index into `waits_s` and `works_s`."""
        return len(self.waits_s)

    def wait_for_call(self) -> None:
        """Until it was served once more. TimeoutError, or the error that stopped it."""
        goal, deadline = self.mark() + 1, time.monotonic() + CALL_S
        while self.mark() < goal:
            if self._fault is not None:
                raise self._fault
            if time.monotonic() > deadline:
                raise TimeoutError(f"the background client of gRPC was not served for {CALL_S:g} s")
            self._stop.wait(REST_S)

    def worst_work_s(self, since: int) -> float:
        return max(self.works_s[since:], default=0.0)

    def usual_s(self, since: int) -> float:
        """The 99th percentile."""
        waits = sorted(self.waits_s[since:])
        return waits[len(waits) * 99 // 100] if waits else 0.0

    def stop(self) -> None:
        """AssertionError: a message that was acknowledged is missing."""
        self._stop.set()
        self._thread.join()
        self._caller.channel.close()
        if self._fault is not None:
            raise self._fault
        with self._open_connection(self._address) as connection:
            found = [record.body for record in read_queue(connection, TOPIC, 0)]
        assert found == [b"%d" % n for n in range(self._sent)]

    def _run(self) -> None:
        try:
            while not self._stop.wait(REST_S):
                begun, worked = time.monotonic(), self._worked_s()
                sent = [message(TOPIC, b"%d" % self._sent)]
                answer = self._caller.call("SendMessage", CALL_S, messages=sent)
                assert answer.status.code == CODES["OK"], answer.status
                self.works_s.append(self._worked_s() - worked)
                self.waits_s.append(time.monotonic() - begun)
                self._sent += 1
        except BaseException as fault:
            self._fault = fault
