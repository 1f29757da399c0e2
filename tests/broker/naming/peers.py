"""Peers and a whole name server for unit tests: no socket, a clock that stands still."""

from collections.abc import Callable, Mapping

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import ManualClock
from firearrow.broker.dispatch import Dispatch
from firearrow.broker.handlers.kv import KvHandler
from firearrow.broker.handlers.naming import NamingHandler
from firearrow.broker.handlers.naming_admin import NamingAdminHandler
from firearrow.broker.handlers.registration import RegistrationHandler
from firearrow.broker.peer import Address, Peer
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import RouteTable


class FakePeer:
    """Keeps what it was sent; `close` tells its listeners, as a connection does."""

    def __init__(self, local: Address = ("127.0.0.1", 9876), remote: Address = ("127.0.0.1", 40000)) -> None:
        self.local = local
        self.remote = remote
        self.closed = False
        self.answers: list[RemotingCommand] = []
        self._callbacks: list[Callable[[Peer], None]] = []

    def reply(self, answer: RemotingCommand) -> None:
        self.answers.append(answer)

    def oneway(self, command: RemotingCommand) -> None:
        raise AssertionError("a name server sends nothing on its own")

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise AssertionError("a name server asks nothing")

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        self._callbacks.append(callback)

    @property
    def listeners(self) -> int:
        return len(self._callbacks)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for callback in self._callbacks:
                callback(self)


class NamingRoom:
    """Tables and handlers of one name server."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.routes = RouteTable(self.clock)
        self.kv_changes = 0
        self.kv = KvTable(self._kv_changed)
        self.options = NamingOptions(given)
        self.dispatch = Dispatch(
            [
                NamingHandler(self.routes, self.kv, self.options, self.clock).routes(),
                NamingAdminHandler(self.routes, self.options).routes(),
                RegistrationHandler(self.routes, self.kv, self.options).routes(),
                KvHandler(self.kv).routes(),
            ]
        )

    def _kv_changed(self) -> None:
        self.kv_changes += 1

    def ask(self, request: RemotingCommand, peer: FakePeer | None = None) -> RemotingCommand:
        peer = FakePeer() if peer is None else peer
        self.dispatch(request, peer)
        return peer.answers[-1]
