"""ServiceCall: a call of a service that needs neither a client nor a login, as gRPC's own ones: health and reflection.
Loop thread.
"""

from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.messages import ProtoClass, ProtoMessage

BYTES_MAX = 4096
"""Of a request."""
NOT_FOUND, RESOURCE_EXHAUSTED, INTERNAL = 5, 8, 13


class ServiceMethod(NamedTuple):
    """`handle(call, request)` is called with each message of the client's. `streams`: there may be several."""

    handle: Callable[["ServiceCall", ProtoMessage], None]
    request: ProtoClass
    response: ProtoClass
    streams: bool = False


class ServiceCall:
    """What HTTP/2's stream calls (see grpc_stream.pxd). `ended()`: the client has cancelled it, or disconnected."""

    def __init__(self, method: ServiceMethod, stream: GrpcStream) -> None:
        self.response = method.response
        self.stream = stream
        self.ended: Callable[[], None] = lambda: None
        self._method = method
        self._has_request = False
        stream.message_bytes_max = min(stream.message_bytes_max, BYTES_MAX)

    # ---- called by the stream ----

    def message(self, data: bytes) -> None:
        if self._has_request and not self._method.streams:
            return
        self._has_request = True
        if self.stream.is_slow:
            return self.stream.finish(RESOURCE_EXHAUSTED, "read the answers before you send further requests")
        try:
            request = messages.parse(self._method.request, data)
        except messages.DecodeError:
            return self.stream.finish(
                INTERNAL, f"the request is not a {self._method.request.DESCRIPTOR.name}"
            )
        return self._method.handle(self, request)

    def half_closed(self) -> None:
        if self._method.streams:
            self.stream.finish()
        elif not self._has_request:
            self.stream.finish(INTERNAL, "the call has no request")

    def cancelled(self) -> None:
        self.ended()

    # ---- called by methods ----

    def send(self, answer: ProtoMessage) -> None:
        if self.stream.is_open:
            self.stream.send(answer.SerializeToString())

    def finish(self, answer: ProtoMessage) -> None:
        """Send the last answer."""
        self.send(answer)
        if self.stream.is_open:
            self.stream.finish()
