"""GrpcConnection: the calls of one connection of HTTP/2, each given to its method and, but for gRPC's own services, its
client. Loop thread."""

from collections.abc import Mapping

from firearrow._native.grpc.plain_sends import PlainSends
from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow.broker.base.peer import Peer
from firearrow.broker.grpc import authorization, messages
from firearrow.broker.grpc.call import Call, Method
from firearrow.broker.grpc.client import GrpcClient
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.service_call import ServiceCall, ServiceMethod
from firearrow.broker.grpc.statuses import GrpcRefusal

CLIENTS_MAX = 1024
"""Clients of one connection; calls of further ones are served, but they cannot register."""
UNKNOWN, UNIMPLEMENTED = 2, 12
CONTENT_TYPE = "application/grpc"
SERVICE_PATH = f"/{messages.SERVICE}"


class GrpcConnection:
    """`methods`: by their names. `others`: of gRPC's own services, by their paths. `peer`: the connection of the
    server. `plain_sends`: sends and acknowledgements that need no call."""

    def __init__(
        self,
        context: GrpcContext,
        methods: Mapping[str, Method],
        others: Mapping[str, ServiceMethod],
        peer: Peer,
        plain_sends: PlainSends | None,
    ) -> None:
        self._context = context
        self._methods = methods
        self._others = others
        self._peer = peer
        self._plain_sends = plain_sends
        self.clients: dict[GrpcClient, None] = {}
        """Those that are registered, the first one first."""
        self._calls = 0
        peer.on_close(self._lost)

    def accept(self, stream: GrpcStream) -> Call | ServiceCall | None:
        """The call of a new stream; None: it was refused."""
        self._calls += 1
        headers = stream.headers
        if stream.method != "POST" or not headers.get("content-type", "").startswith(CONTENT_TYPE):
            stream.finish(UNKNOWN, "only gRPC is served here: POST with content-type application/grpc")
            return None
        other = self._others.get(stream.path)
        if other is not None:
            return ServiceCall(other, stream)
        service, _, name = stream.path.rpartition("/")
        method = self._methods.get(name) if service == SERVICE_PATH else None
        if method is None:
            stream.finish(UNIMPLEMENTED, f"Method not found: {stream.path[1:256]}")
            return None
        client_id, user = authorization.client_of(headers)
        client = self._context.clients.find(self._peer, client_id, user, headers)
        stream.message_bytes_max = min(stream.message_bytes_max, method.bytes_max)
        call = Call(self._context, self, method, self._peer, client, stream)
        fault = authorization.client_fault(client_id)
        if fault is not None:
            call.refuse(GrpcRefusal("CLIENT_ID_REQUIRED", fault))
            return None
        return call

    def keep(self, client: GrpcClient) -> bool:
        """The client ends with its last connection; False: this one has too many already."""
        if len(self.clients) >= CLIENTS_MAX and client not in self.clients:
            return False
        self.clients[client] = None
        return True

    def drop(self, client: GrpcClient) -> None:
        """The client has ended."""
        self.clients.pop(client, None)
        if self._plain_sends is not None:
            self._plain_sends.forget()

    def let_through(self, stream: GrpcStream, client: GrpcClient) -> None:
        """A call of this client was checked; the stream has its headers."""
        if self._plain_sends is not None and client in self.clients:
            self._plain_sends.let_through(stream, client.client_id, client.user, client.remote[0])

    @property
    def calls(self) -> int:
        """How many were made."""
        plain = self._plain_sends
        return self._calls + (0 if plain is None else plain.calls + plain.acks.calls)

    def _lost(self, peer: Peer) -> None:
        for client in list(self.clients):
            client.lost(self)
        self.clients.clear()
