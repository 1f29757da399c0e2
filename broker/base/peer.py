"""The other end of a connection, as handlers and tables see it. `server` implements it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from firearrow._native.wire.command import RemotingCommand

Address = tuple[str, int]


class Peer(Protocol):
    @property
    def remote(self) -> Address:
        """The address the peer comes from."""

    @property
    def local(self) -> Address:
        """Our address by which the peer reached us."""

    @property
    def closed(self) -> bool: ...
    @property
    def write_paused(self) -> bool:
        """The peer does not read what it is sent."""

    def reply(self, answer: RemotingCommand) -> None:
        """Send an answer; answers of one turn leave together."""

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that wants no answer."""

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait; TimeoutError, or ConnectionError when the peer goes away."""

    def on_close(self, callback: Callable[["Peer"], None]) -> None:
        """Call `callback` once when the connection is gone."""

    def close(self) -> None: ...


Answer = RemotingCommand | None | Awaitable[RemotingCommand | None]
Handler = Callable[[RemotingCommand, Peer], Answer]
Routes = Mapping[int, Handler]
