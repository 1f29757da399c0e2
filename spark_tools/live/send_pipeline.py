"""SendPipeline: send requests to one broker, retried until stored or refused. At least once.

If the connection breaks or stays silent for too long, reconnect and resend all unanswered requests in order.
One thread; only routes are resolved in the client's loop.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import SendFailed
from firearrow.spark_tools.live.client_link import BUSY, RetryDeadline, SharedAdmin
from firearrow.spark_tools.live.connection import BrokerSocket, connect

SILENT_S = 15.0
OPAQUE_MAX = 0x7FFFFFFF
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""The message is in the log, though maybe not yet flushed or replicated as configured."""


@dataclass(slots=True, eq=False)
class SendRequest:
    """`queue` has its wire name. It ends with `offsets` or a `failure`; then `settled` is called."""

    queue: MessageQueue
    command: RemotingCommand
    body: bytes
    count: int
    settled: Callable[["SendRequest"], None]
    offsets: range | None = None
    failure: SendFailed | None = None

    @property
    def done(self) -> bool:
        return self.offsets is not None or self.failure is not None


class SendPipeline:
    """`timeout_s`: how long to retry a broker that is down, silent or busy before requests fail."""

    def __init__(self, admin: SharedAdmin, broker_name: str, topic: str, timeout_s: float) -> None:
        self.unanswered: dict[int, SendRequest] = {}
        self._admin = admin
        self._broker_name = broker_name
        self._topic = topic
        self._deadline = RetryDeadline(timeout_s)
        self._silent_s = min(SILENT_S, timeout_s)
        self._socket: BrokerSocket | None = None
        self._address = ""
        self._opaque = 0

    def send(self, request: SendRequest) -> None:
        """Return when the request is written, or has failed."""
        self._opaque = self._opaque % OPAQUE_MAX + 1
        request.command.opaque = self._opaque
        self.unanswered[self._opaque] = request
        try:
            if self._socket is None:
                self._connect()
            else:
                self._write(self._socket, request)
        except (OSError, ClientError, ConfigError) as error:
            self._recover(error)

    def collect(self) -> None:
        """Handle the responses received; wait for one if there is none. Call it only with unanswered
        requests."""
        if self._socket is None:
            return
        try:
            answers = self._socket.answers(self._silent_s)
        except OSError as error:
            self._recover(error)
            return
        for answer in sorted(answers, key=lambda answer: answer.code == ResponseCode.GO_AWAY):
            self._take(answer)  # GO_AWAY last: requests stored before it must not be resent

    def abandon(self) -> None:
        """Fail all unanswered requests."""
        self._give_up(SendFailed("the sender was closed before the answer came"))

    # ---- answers ----

    def _take(self, answer: RemotingCommand) -> None:
        request = self.unanswered.get(answer.opaque)
        if request is None:
            return
        if answer.code == ResponseCode.GO_AWAY:
            self._recover(self._refusal(answer))
        elif answer.code in BUSY:
            self._again(request, self._refusal(answer))
        else:
            self._deadline.renew()
            del self.unanswered[answer.opaque]
            self._settle(request, answer)

    def _settle(self, request: SendRequest, answer: RemotingCommand) -> None:
        try:
            if answer.code not in STORED:
                raise self._refusal(answer)
            first = answer.integer("queueOffset")
        except (BrokerError, FieldError) as error:
            _fail(request, error)
        else:
            request.offsets = range(first, first + request.count)
            request.settled(request)

    def _refusal(self, answer: RemotingCommand) -> BrokerError:
        return BrokerError(answer.code, answer.remark or "", self._broker_name)

    def _again(self, request: SendRequest, busy: BrokerError) -> None:
        if not self._deadline.wait():
            self._give_up(busy)
            return
        try:
            if busy.code == ResponseCode.SERVICE_NOT_AVAILABLE and self._moved():
                self._recover(busy)
            elif self._socket is not None:
                self._write(self._socket, request)
        except (OSError, ClientError, ConfigError) as error:
            self._recover(error)

    # ---- the connection ----

    def _connect(self) -> None:
        """Open a new connection and resend all unanswered requests."""
        broker_socket = connect(self._admin, self._master())
        try:
            for request in self.unanswered.values():
                self._write(broker_socket, request)
        except BaseException:
            broker_socket.close()
            raise
        self._socket = broker_socket

    def _moved(self) -> bool:
        """Whether another broker is the master now: this one may be fenced, and refuse everything from now on."""
        connected = self._address
        return self._master() != connected

    def _master(self) -> str:
        """Refresh the route: a restarted broker may have another address."""
        admin, name, topic = self._admin, self._broker_name, self._topic

        async def asking() -> str:
            await admin.instance.routes.refresh(topic)
            return await admin.instance.master(name)

        self._address = admin.run(asking)
        return self._address

    def _write(self, broker_socket: BrokerSocket, request: SendRequest) -> None:
        """Encode the header without the body: the body is signed with it, but never copied."""
        command = request.command
        command.body = request.body
        self._admin.instance.channels.prepare(command, self._address)
        command.body = b""
        head = bytearray(command.encode())
        struct.pack_into(">i", head, 0, len(head) - 4 + len(request.body))
        broker_socket.write((bytes(head), request.body), self._silent_s)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _recover(self, error: Exception) -> None:
        """Reconnect until it works or the time is up."""
        while True:
            self._close()
            if isinstance(error, ConfigError) or not self._deadline.wait():
                self._give_up(error)
                return
            try:
                self._connect()
            except (OSError, ClientError, ConfigError) as again:
                error = again
            else:
                return

    def _give_up(self, error: Exception) -> None:
        failed, self.unanswered = self.unanswered, {}
        self._close()
        self._deadline.renew()
        for request in failed.values():
            _fail(request, error)


def _fail(request: SendRequest, error: Exception) -> None:
    queue = request.queue
    request.failure = SendFailed(f"{queue.topic}@{queue.broker_name}:{queue.queue_id}: {error}")
    request.failure.__cause__ = error
    request.settled(request)
