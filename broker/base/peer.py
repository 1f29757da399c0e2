"""Peer: the other end of a connection, as handlers and tables see it. `broker/net/server` implements it.

HeldAccess: whether requests of peers may still be answered after they were held, and producers asked.
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Protocol

from firearrow._native.wire.command import RemotingCommand

Address = tuple[str, int]


class Peer(Protocol):
    @property
    def remote(self) -> Address:
        """The peer's address."""

    @property
    def local(self) -> Address:
        """Our address by which the peer reached us."""

    @property
    def number(self) -> int:
        """Connections are numbered in the order in which they were made."""

    @property
    def closed(self) -> bool: ...
    @property
    def write_paused(self) -> bool:
        """Whether the peer reads too slowly, so that sent bytes pile up."""

    def reply(self, answer: RemotingCommand) -> None:
        """Send an answer; the answers of one pass of the loop are written together. One that is closed drops it."""

    def oneway(self, command: RemotingCommand) -> None:
        """Send a one-way request."""

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for the answer. TimeoutError, or ConnectionError if the connection
        closes."""

    def on_close(self, callback: Callable[["Peer"], None]) -> None:
        """Call `callback` once when the connection is closed."""

    def close(self) -> None: ...
    def throttle(self, delay_s: float) -> None:
        """Send it no answer and read no request of it for so long."""


REMOTING, GRPC = "remoting", "grpc"
"""Protocols of clients, as metrics and lists name them."""


class GrpcPeer(Peer, Protocol):
    """A client of gRPC. `version`: as it states it."""

    @property
    def client_id(self) -> str: ...
    @property
    def language_name(self) -> str: ...
    @property
    def version(self) -> str: ...


class GrpcCalls(Protocol):
    """What a connection of gRPC has: the clients that are registered on it, and how many calls there were."""

    @property
    def clients(self) -> Collection[GrpcPeer]: ...
    @property
    def calls(self) -> int: ...


class OpenConnection(Peer, Protocol):
    """A connection of the server. Times are those of the event loop, in seconds."""

    @property
    def grpc(self) -> GrpcCalls | None:
        """None: it speaks remoting."""

    @property
    def since(self) -> float: ...
    @property
    def last_seen(self) -> float: ...
    @property
    def received_frames(self) -> int: ...


LINK_NETWORK = bytes((0xFE, 0x80)) + bytes(6)
"""The first 64 bits of fe80::/64."""

Answer = RemotingCommand | None | Awaitable[RemotingCommand | None]
Handler = Callable[[RemotingCommand, Peer], Answer]
Routes = Mapping[int, Handler]
Check = Callable[[RemotingCommand, Peer, bool], None]
"""Called before each request, with whether it has a handler. A Refusal: it may not be made."""


def ip_text(host: str) -> str:
    """The IP address of a peer, IPv4 in IPv6 as IPv4, without a zone."""
    return host.removeprefix("::ffff:").partition("%")[0]


def is_loopback(host: str) -> bool:
    """Whether a peer with this address is on this machine; not if the address is not known."""
    try:
        return ip_address(ip_text(host)).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def counted_address(host: str) -> str:
    """What limits for an address count together: an IPv4 address, or the network of 64 bits of an IPv6 address, as its
    owner has all of these. Loopback, addresses of a link, whose hosts share the network, and a text that is not an
    address stay as they are."""
    host = ip_text(host)
    if ":" not in host or host == "::1":
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return host
    if packed[:8] == LINK_NETWORK:
        return host
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"


def with_host(address: str, peer: Peer) -> str:
    """Complete our own address, which has no host, with the host by which the peer reached us."""
    if not address.startswith(":"):
        return address
    host = peer.local[0].removeprefix("::ffff:")
    return f"[{host}]{address}" if ":" in host else f"{host}{address}"


def _everyone_may(request: RemotingCommand, peer: Peer) -> None:
    pass


def _everyone_sends(user: str | None, topic: str, peer: Peer) -> bool:
    return True


class HeldAccess:
    """`check(request, peer)` raises a Refusal for a request that was let through and may not be answered any more. It
    runs only for requests that were held in another `generation`: users or rules have changed since.
    `may_send(user, topic, peer)`: whether who announced a producer, on that connection, may send to the topic."""

    __slots__ = ("_check", "generation", "may_send")

    def __init__(
        self,
        check: Callable[[RemotingCommand, Peer], None] = _everyone_may,
        may_send: Callable[[str | None, str, Peer], bool] = _everyone_sends,
    ) -> None:
        self._check = check
        self.may_send = may_send
        self.generation = 0

    def forget(self) -> None:
        """Users or rules changed."""
        self.generation += 1

    def check(self, request: RemotingCommand, peer: Peer, generation: int) -> None:
        """Refusal. `generation`: the one in which the request was held."""
        if generation != self.generation:
            self._check(request, peer)
