"""Call: one gRPC call of a client: parses its request, gives it to its method, and sends what comes of it.

A method that needs what remoting's requests do makes such a request (`ask`): it is checked, limited and handled as if a
client of remoting had sent it, and its answer comes to the method. So no rule is written twice. InnerPeer is the peer
of such a request. Loop thread.
"""

import logging
import re
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.grpc import authorization, messages
from firearrow.broker.grpc.client import Connection, GrpcClient
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.messages import ProtoClass, ProtoMessage
from firearrow.broker.grpc.statuses import GrpcRefusal, readable

log = logging.getLogger("firearrow.grpc")

RESOURCE_EXHAUSTED, INTERNAL = 8, 13
TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
TIMEOUT_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
Then = Callable[[RemotingCommand], None]
Handle = Callable[["Call", ProtoMessage], None]


class Method(NamedTuple):
    """`handle(call, request)` is called with each message of the client's. `refused(status)`: how a stream of answers
    states a refusal; None: by an answer with the status. `streams`: the client may send several messages.
    `bytes_max`: of a message of the client's."""

    name: str
    handle: Handle
    request: ProtoClass
    response: ProtoClass
    streams: bool = False
    bytes_max: int = 4 << 20
    ended: Callable[["Call"], None] = lambda call: None


class InnerPeer:
    """The peer of a request that a call makes: gets its answer. It is closed once the call has ended; `too_late` gets
    an answer that comes then."""

    def __init__(self, call: "Call", then: Then, too_late: Then) -> None:
        self._call = call
        self._then = then
        self._too_late = too_late
        peer = call.peer
        self.remote: Address = peer.remote
        self.local: Address = peer.local
        self.number = peer.number

    @property
    def closed(self) -> bool:
        return not self._call.stream.is_open

    @property
    def write_paused(self) -> bool:
        return self._call.stream.is_slow

    def reply(self, answer: RemotingCommand) -> None:
        self._call.client.count_answer(answer)
        self._call.client.when_allowed(lambda: self._answer(answer))

    def _answer(self, answer: RemotingCommand) -> None:
        if self.closed:
            self._too_late(answer)
        else:
            self._call.run(lambda: self._then(answer))

    def oneway(self, command: RemotingCommand) -> None:
        self._call.client.oneway(command)

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._call.client.ask(command, timeout_s)

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        self._call.on_end(lambda: callback(self))

    def close(self) -> None:
        self._call.stream.reset()

    def throttle(self, delay_s: float) -> None:
        self._call.client.throttle(delay_s)


class Call:
    """What HTTP/2's stream calls (see grpc_stream.pxd). `client`: the one that the headers name; who may do what is
    asked of `peer`, the connection: another one may name the same client."""

    def __init__(
        self,
        context: GrpcContext,
        connection: Connection,
        method: Method,
        peer: Peer,
        client: GrpcClient,
        stream: GrpcStream,
    ) -> None:
        self._context = context
        self._connection = connection
        self.method = method
        self.peer = peer
        self.client = client
        self.stream = stream
        self._began_ms = context.clock.now_ms()
        self._on_end: list[Callable[[], None]] = []
        self.undelivered: Callable[[], None] | None = None
        """Called if the stream ends before its answers were sent."""
        self._has_request = False
        self._is_refused = False

    # ---- called by the stream ----

    def message(self, data: bytes) -> None:
        if self._has_request and not self.method.streams:
            return
        self._has_request = True
        if self.method.streams and self.stream.is_slow:
            return self.stream.finish(RESOURCE_EXHAUSTED, "read the answers before you send further requests")
        try:
            request = messages.parse(self.method.request, data)
        except messages.DecodeError:
            name = self.method.request.DESCRIPTOR.name
            return self.stream.finish(INTERNAL, f"the request is not a {name}, or has too many fields")
        return self.run(lambda: self.method.handle(self, request))

    def half_closed(self) -> None:
        if self.method.streams:
            self.method.ended(self)
            if not self._is_refused:
                self.stream.finish()
        elif not self._has_request:
            self.stream.finish(INTERNAL, "the call has no request")

    def cancelled(self) -> None:
        self.end()
        self.method.ended(self)
        if self.undelivered is not None:
            self.undelivered()

    # ---- called by methods ----

    @property
    def timeout_s(self) -> float | None:
        """How long the client waits; None: for ever."""
        found = TIMEOUT.fullmatch(self.stream.headers.get("grpc-timeout", ""))
        return None if found is None else int(found[1]) * TIMEOUT_UNITS_S[found[2]]

    def run(self, step: Callable[[], None]) -> None:
        """Do a step of the method; what it raises becomes the answer."""
        if not self.stream.is_open:
            return
        try:
            step()
        except GrpcRefusal as refusal:
            self.refuse(refusal)
        except Exception:  # the client gets an answer in any case
            log.exception("%s of %s failed", self.method.name, self.client.client_id[:80])
            text = f"the broker failed in {self.method.name}: its log has the reason"
            self.refuse(GrpcRefusal("INTERNAL_SERVER_ERROR", text))

    def ask(self, request: RemotingCommand, then: Then, too_late: Then = lambda answer: None) -> None:
        """Serve a request of remoting by the rights of this call's client; `then(answer)`, or `too_late(answer)` once
        the call has ended. GrpcRefusal."""
        self.check(request)
        self._context.dispatch(request, InnerPeer(self, then, too_late))

    def check(self, request: RemotingCommand) -> None:
        """GrpcRefusal: the client may not make this request."""
        self.client.mark(request)
        if self._context.check is not None:
            self._check_age()
            self.client.sign(request, self.stream.headers)
            try:
                self._context.check(request, self.peer, True)
            except Refusal as refusal:
                raise GrpcRefusal("UNAUTHORIZED", readable(refusal.remark), refusal.delay_s) from None
        self.client = self._context.clients.verified(self.client, self._connection)

    def _check_age(self) -> None:
        """GrpcRefusal: its headers are too old. A stream that stays open has them from its beginning."""
        age_s = self._context.config.options.grpc_signature_age_s
        if age_s:
            authorization.check_age(self.stream.headers, self._began_ms, age_s)

    def let_through(self) -> None:
        """The call was checked: plain ones with the same headers need no call, while their age does not count."""
        self._connection.let_through(self.stream, self.client)

    def send(self, answer: ProtoMessage) -> None:
        self.stream.send(answer.SerializeToString())

    def finish(self, answer: ProtoMessage) -> None:
        """Send the last answer."""
        self.send(answer)
        self.stream.finish()
        self.end()

    def refuse(self, refusal: GrpcRefusal) -> None:
        self._is_refused = True
        if refusal.delay_s > 0:  # a failed login
            self._context.loop.call_later(refusal.delay_s, self._refuse, refusal)
        else:
            self._refuse(refusal)

    def _refuse(self, refusal: GrpcRefusal) -> None:
        if self.stream.is_open:
            self.finish(self.method.response(status=messages.status(refusal.code, refusal.text)))

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call it when the call is cancelled or has its answer."""
        self._on_end.append(callback)

    def end(self) -> None:
        callbacks, self._on_end = self._on_end, []
        for callback in callbacks:
            callback()
