"""GrpcClient: a client of gRPC, as handlers and tables see it: a Peer, with its settings and its Telemetry stream.
GrpcClients: those that are online.

A client is an id and the user that it logs in as; several may share a connection, and one may have several. It ends
with its last connection, with NotifyClientTermination, or without heartbeats, as a client of remoting does. Loop
thread.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from typing import Protocol

from firearrow._native.fastpath.request_times import RequestTimes
from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow._native.wire.codes import PROTOCOL_VERSION, LanguageCode, RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import OF_GRPC
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.grpc import authorization
from firearrow.broker.grpc.commands import command_of, result_of
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.settings import PRODUCER, ClientSettings
from firearrow.broker.grpc.statuses import GrpcRefusal

log = logging.getLogger("firearrow.grpc")

Receive = Callable[[RemotingCommand, Peer], None]
OPAQUE_MAX = 0x7FFFFFFF
ASKED_MAX = 64
"""Most commands that a client may leave unanswered."""
VERSION_CHARS_MAX = 32
LANGUAGES = {language.name: int(language) for language in LanguageCode}
NOT_ASKED = "a client of gRPC does not answer this request"


class Connection(Protocol):
    """What a client makes its calls on."""

    def keep(self, client: "GrpcClient") -> bool:
        """The client ends with its last connection; False: this one has too many already."""

    def drop(self, client: "GrpcClient") -> None:
        """The client has ended."""

    def let_through(self, stream: GrpcStream, client: "GrpcClient") -> None:
        """A send of this client was checked; the stream has its headers."""


class GrpcClient:
    """`settings`: what the client sent last; None: nothing yet. `telemetry`: the stream of commands to it."""

    def __init__(
        self, clients: "GrpcClients", peer: Peer, client_id: str, user: str, headers: dict[str, str]
    ) -> None:
        self.client_id = client_id
        self.user = user
        self.settings: ClientSettings | None = None
        self.heartbeat = b""
        """The body of its heartbeats, by these settings."""
        self.telemetry: GrpcStream | None = None
        self.closed = False
        self._clients = clients
        self._connections: set[Connection] = set()
        self.remote: Address = peer.remote
        self.local: Address = peer.local
        self.number = peer.number
        self._language = LANGUAGES.get(headers.get("x-mq-language", ""), int(LanguageCode.OTHER))
        self.version = headers.get("x-mq-client-version", "")[:VERSION_CHARS_MAX]
        """As the client states it."""
        self._throttled_until = 0.0
        self._on_close: list[Callable[[Peer], None]] = []
        self._nonces = itertools.count()
        self._asked: dict[str, tuple[RemotingCommand, asyncio.Future[RemotingCommand]]] = {}
        self._own_requests: dict[int, Callable[[RemotingCommand], None]] = {}
        self._opaques = itertools.count(1)

    # ---- its requests ----

    def mark(self, request: RemotingCommand) -> None:
        """A request that is made for a call states whose it is."""
        request.language, request.version = self._language, PROTOCOL_VERSION
        request.serializer = OF_GRPC
        request.since_ns = time.monotonic_ns()

    @staticmethod
    def sign(request: RemotingCommand, headers: dict[str, str]) -> None:
        """It is signed if the call with these headers is. GrpcRefusal."""
        if authorization.HEADER in headers:
            authorization.sign(request, headers)

    def again(self) -> "GrpcClient":
        """The client that comes back after this one has ended, which leaves no group any more."""
        found = GrpcClient(self._clients, self, self.client_id, self.user, {})
        found._language, found.version = self._language, self.version
        return found

    def join(self, connection: Connection) -> bool:
        """It makes calls on this connection; False: the client has ended, or the connection has too many."""
        if self.closed or (connection not in self._connections and not connection.keep(self)):
            return False
        self._connections.add(connection)
        return True

    def make(
        self, dispatch: Receive, request: RemotingCommand, then: Callable[[RemotingCommand], None]
    ) -> None:
        """Make a request that registers the client itself, such as a heartbeat; `then(answer)`."""
        request.opaque = next(self._opaques) & OPAQUE_MAX
        self._own_requests[request.opaque] = then
        dispatch(request, self)

    def check_settings(self) -> ClientSettings:
        """Its settings. GrpcRefusal: it has sent none yet."""
        if self.settings is None:
            text = "cannot find client settings for this client"
            raise GrpcRefusal("UNRECOGNIZED_CLIENT_TYPE", text)
        return self.settings

    def count_answer(self, answer: RemotingCommand) -> None:
        self._clients.times.answer(answer, self.closed)

    def when_allowed(self, send: Callable[[], None]) -> None:
        """Send an answer: at once, or when the client's quotas allow it."""
        loop = self._clients.loop
        wait_s = self._throttled_until - loop.time() if self._throttled_until else 0.0
        if wait_s > 0:
            loop.call_later(wait_s, send)
        else:
            self._throttled_until = 0.0
            send()

    # ---- Peer ----

    @property
    def write_paused(self) -> bool:
        return self.telemetry is None or not self.telemetry.is_open or self.telemetry.is_slow

    def reply(self, answer: RemotingCommand) -> None:
        then = self._own_requests.pop(answer.opaque, None)
        if then is not None:
            then(answer)

    def oneway(self, command: RemotingCommand) -> None:
        """Clients of gRPC get the checks of transactions, and which lite topics others have taken over; they need no
        other notification."""
        if command.code in (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_UNSUBSCRIBE_LITE):
            self._send(command_of(command, ""))

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if self.closed or self.telemetry is None or not self.telemetry.is_open:
            raise ConnectionError("the client has no Telemetry stream")
        if len(self._asked) >= ASKED_MAX:
            raise ConnectionError(f"the client has {ASKED_MAX} commands to answer already")
        nonce = str(next(self._nonces))
        message = command_of(command, nonce)
        if message is None:
            raise ConnectionError(NOT_ASKED)
        future: asyncio.Future[RemotingCommand] = self._clients.loop.create_future()
        self._asked[nonce] = command, future
        self._send(message)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        finally:
            self._asked.pop(nonce, None)

    def answered(self, message: ProtoMessage) -> None:
        """The client answers a command, by its nonce."""
        kind = message.WhichOneof("command")
        command, future = self._asked.pop(getattr(message, kind).nonce, (None, None))
        if command is not None and future is not None and not future.done():
            future.set_result(result_of(command, message))

    def _send(self, message: ProtoMessage) -> None:
        if message is not None and self.telemetry is not None:
            self.telemetry.send(message.SerializeToString())

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        self._on_close.append(callback)

    def throttle(self, delay_s: float) -> None:
        self._throttled_until = max(self._throttled_until, self._clients.loop.time() + delay_s)

    def close(self) -> None:
        """The client ends: it leaves its groups and producers."""
        if self.closed:
            return
        self.closed = True
        self.settings = None
        self._clients.remove(self)
        if self.telemetry is not None:
            self.telemetry.finish()
            self.telemetry = None
        for _, future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionError("the client has ended"))
        self._asked.clear()
        self._own_requests.clear()
        for connection in self._connections:
            connection.drop(self)
        self._connections.clear()
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback(self)

    def lost(self, connection: Connection) -> None:
        """One of its connections was lost."""
        self._connections.discard(connection)
        if not self._connections:
            self.close()

    @property
    def is_online(self) -> bool:
        """False: it has ended, or its connections have too many clients."""
        return bool(self._connections)

    @property
    def language_name(self) -> str:
        return LanguageCode(self._language).name

    @property
    def is_producer(self) -> bool:
        return self.settings is not None and self.settings.client_type == PRODUCER


class GrpcClients:
    """The clients that are online, by id and user. `ClientTable` has their groups, as of all clients: they are members
    with a GrpcClient as their peer. `times`: what is measured of answers. `ended(client)`: it is not online any
    more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, times: RequestTimes) -> None:
        self.loop = loop
        self.times = times
        self.ended: Callable[[GrpcClient], None] = lambda client: None
        self._clients: dict[tuple[str, str], GrpcClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, peer: Peer, client_id: str, user: str, headers: dict[str, str]) -> GrpcClient:
        """The client that is online; else a new one, which is kept once a call of it is let through."""
        found = self._clients.get((client_id, user))
        return GrpcClient(self, peer, client_id, user, headers) if found is None else found

    def verified(self, client: GrpcClient, connection: Connection) -> GrpcClient:
        """A call of the client on this connection was let through: the client is who it claims to be. Returns the one
        that is kept, since a call that came before this one may have made it."""
        key = client.client_id, client.user
        found = self._clients.get(key)
        if found is None:
            found = client.again() if client.closed else client
        if found.join(connection):
            self._clients[key] = found
        return found

    def remove(self, client: GrpcClient) -> None:
        if self._clients.get((client.client_id, client.user)) is client:
            del self._clients[client.client_id, client.user]
            self.ended(client)

    def is_online(self, client_id: str, user: str) -> bool:
        return (client_id, user) in self._clients
