"""Channels: the connections of a client instance, opened when first used; SOCKS5 proxies.

It adds namespace, hooks and signature to each request. A host name is resolved again for each connection.
Proxies need the package `python-socks`, imported when first used. Loop thread.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.keep_alive import keep_alive
from firearrow.client.base.errors import ClientError, ConfigError, ConnectFailed, NotRunning
from firearrow.client.base.hooks import RpcHook
from firearrow.client.base.options import ClientOptions, SocksProxy
from firearrow.client.remoting.channel import Channel, sign
from firearrow.client.remoting.tls import ClientTls, tls_fault

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

ANY_HOST = "*"
HOLD_UP_S = 0.5
"""How long one server without an answer may delay what another one could answer."""


class SocksProxies:
    """Proxies by network (`10.0.0.0/8`) or `*`; the first that contains a host's address is used.

    ConfigError: a key is neither.
    """

    def __init__(self, proxies: Mapping[str, SocksProxy]) -> None:
        self._proxies = [(_network(pattern), proxy) for pattern, proxy in proxies.items()]

    def of(self, host: str) -> SocksProxy | None:
        """Host names match `*` only: the proxy resolves them."""
        if not self._proxies:
            return None
        from ipaddress import ip_address  # noqa: PLC0415 (only for proxies)

        try:
            address = ip_address(host)
        except ValueError:
            address = None
        for network, proxy in self._proxies:
            if network is None or (address is not None and address in network):
                return proxy
        return None


async def connect_through(proxy: SocksProxy, host: str, port: int, timeout_s: float) -> socket.socket:
    """A socket that the proxy connected to the host. ConnectFailed. ConfigError: the package is missing."""
    try:
        package, errors = import_module("python_socks.async_.asyncio"), import_module("python_socks")
    except ImportError:
        raise ConfigError(
            "socks_proxies need the package python-socks: pip install firearrow[socks]"
        ) from None
    proxy_host, _, proxy_port = proxy.address.rpartition(":")
    through = package.Proxy(
        errors.ProxyType.SOCKS5, proxy_host, int(proxy_port), proxy.username, proxy.password, rdns=True
    )
    try:
        connected: socket.socket = await through.connect(host, port, timeout=timeout_s)
    except (errors.ProxyError, errors.ProxyConnectionError, errors.ProxyTimeoutError, OSError) as error:
        raise ConnectFailed(
            f"no connection to {host}:{port} through the proxy {proxy.address}: {error}"
        ) from error
    return connected


def _network(pattern: str) -> "IPv4Network | IPv6Network | None":
    if pattern == ANY_HOST:
        return None
    from ipaddress import ip_network  # noqa: PLC0415 (only for proxies)

    try:
        return ip_network(pattern, strict=False)
    except ValueError:
        raise ConfigError(
            f"socks_proxies: the key {pattern!r} must be a network (`10.0.0.0/8`) or `*`"
        ) from None


RequestReceived = Callable[[RemotingCommand, Channel], None]


class Channels:
    """`lost(address, reason)` is called when a connection is lost, `failed(address, reason)` when none could be opened,
    `opened(address, again)` when one was; `again`: another one was lost before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: ClientOptions,
        request_received: RequestReceived,
        opened: Callable[[str, bool], None],
        lost: Callable[[str, str], None] = lambda address, reason: None,
        failed: Callable[[str, str], None] = lambda address, reason: None,
    ) -> None:
        self.loop = loop
        self.hooks: list[RpcHook] = []
        self._options = options
        self._request_received = request_received
        self._opened = opened
        self._lost = lost
        self._failed = failed
        self._open: dict[str, Channel] = {}
        self._opening: dict[str, asyncio.Task[Channel]] = {}
        self._all: set[Channel] = set()
        self._reached: set[str] = set()
        self._tls = ClientTls(options.tls) if options.tls else None
        self._proxies = SocksProxies(options.socks_proxies)
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer, with any code. TransportError and its subclasses, TooManyRequests.

        A server that shuts down (GO_AWAY) is called once more, on a new connection.
        """
        deadline = self.loop.time() + timeout_s
        again = True
        while True:
            channel = self.held(address) or await self.open(address, deadline - self.loop.time())
            self.prepare(command, address)
            answer = await channel.call(command, max(deadline - self.loop.time(), 0))
            for hook in self.hooks:
                hook.after(address, command, answer)
            if answer.code != ResponseCode.GO_AWAY:
                return answer
            self._retire(channel)
            if not again:
                return answer
            again = False

    async def call_first(
        self, addresses: Sequence[str], request: Callable[[], RemotingCommand], timeout_s: float
    ) -> tuple[RemotingCommand, str]:
        """Call these, one after the other, until one answers: the answer and its address.

        The next one is called when the previous one failed or has not answered for HOLD_UP_S. The error of the
        last one that failed.
        """
        left = list(addresses)
        failure: BaseException = ClientError("no address to call")
        calls: dict[asyncio.Task[RemotingCommand], str] = {}
        try:
            while left or calls:
                if left:
                    address = left.pop(0)
                    calls[self.loop.create_task(self.call(address, request(), timeout_s))] = address
                await asyncio.wait(
                    calls, timeout=HOLD_UP_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for call in [call for call in calls if call.done()]:
                    address, error = calls.pop(call), call.exception()
                    if error is None:
                        return call.result(), address
                    failure = error
        finally:
            for call in calls:
                call.add_done_callback(_ignore_failure)
                call.cancel()
        raise failure

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send without waiting for an answer. ConnectFailed."""
        channel = self.held(address) or await self.open(address, self._options.connect_timeout_s)
        command.flag |= 2
        self.prepare(command, address)
        channel.oneway(command)

    def addresses(self) -> list[str]:
        """Those with an open channel. Any thread."""
        return [address for address, channel in self._open.copy().items() if not channel.closed]

    def held(self, address: str) -> Channel | None:
        """The open channel to this address, if there is one."""
        channel = self._open.get(address)
        return channel if channel is not None and not channel.closed else None

    @property
    def plain(self) -> bool:
        """Requests are sent as they were created: nothing is added to their fields."""
        options = self._options
        return not (self.hooks or options.credentials or options.namespace_v2)

    def prepare(self, command: RemotingCommand, address: str) -> None:
        """Add the fields that every request carries; the signature comes last."""
        options = self._options
        if options.namespace_v2:
            command.ext["nsd"] = "true"
            command.ext["ns"] = options.namespace_v2
        if options.binary_headers:
            command.serializer = 1
        for hook in self.hooks:
            hook.before(address, command)
        if options.credentials is not None:
            sign(command, options.credentials)

    async def open(self, address: str, timeout_s: float) -> Channel:
        """The channel to this address; concurrent callers share one attempt to open it.

        ConnectFailed. NotRunning: the client is closed, maybe meanwhile.
        """
        if self._closed:
            raise NotRunning("the client is closed")
        opening = self._opening.get(address)
        if opening is None:
            opening = self.loop.create_task(self._connect(address))
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._connected(address, task))
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                return await asyncio.shield(opening)
        except TimeoutError:
            raise ConnectFailed(f"{address}: not connected in time") from None
        except asyncio.CancelledError:
            if not opening.cancelled():
                raise  # the caller was cancelled, not the attempt
            raise NotRunning("the client was closed") from None

    async def close(self, within_s: float = 3) -> None:
        """Wait at most `within_s` for outstanding answers, then close every connection."""
        self._closed = True
        for task in list(self._opening.values()):
            task.cancel()
        for channel in list(self._all):
            channel.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        for channel in list(self._all):
            channel.abort()
        self._open.clear()

    def close_idle(self) -> None:
        """Close the connections that were idle for `idle_s` and have no unanswered request."""
        oldest = self.loop.time() - self._options.idle_s
        for channel in [c for c in self._all if c.last_seen < oldest and not c.pending]:
            self._reached.discard(channel.address)
            self._retire(channel)

    async def _connect(self, address: str) -> Channel:
        host, port = host_port(address)
        options = self._options
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                channel = await self._new_channel(address, host, port)
        except TimeoutError:
            raise ConnectFailed(f"{address}: not connected within {options.connect_timeout_s} s") from None
        except (OSError, ssl.SSLError) as error:
            raise ConnectFailed(f"{address}: {tls_fault(error)}") from error
        self._open[address] = channel
        self._all.add(channel)
        self._empty.clear()
        again = address in self._reached
        self._reached.add(address)
        self._opened(address, again)
        return channel

    async def _new_channel(self, address: str, host: str, port: int) -> Channel:
        """A direct connection, or one through the proxy of that host."""
        options = self._options
        context = None if self._tls is None else self._tls.context()
        name = None if self._tls is None else self._tls.server_name(host)

        def new_channel() -> Channel:
            return Channel(
                self.loop, address, self._request_received, self._left, options.pending_max, tls=bool(context)
            )

        proxy = self._proxies.of(host)
        if proxy is None:
            _, channel = await self.loop.create_connection(
                new_channel, host, port, ssl=context, server_hostname=name
            )
        else:
            proxied = await connect_through(proxy, host, port, options.connect_timeout_s)
            _, channel = await self.loop.create_connection(
                new_channel, sock=proxied, ssl=context, server_hostname=name
            )
        keep_alive(channel.transport.get_extra_info("socket"))
        return channel

    def _connected(self, address: str, task: asyncio.Task[Channel]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(address, str(error))

    def retire(self, address: str) -> None:
        """Stop using the channel to this address; the next request opens another."""
        channel = self._open.get(address)
        if channel is not None:
            self._retire(channel)

    def drop(self, channel: Channel) -> None:
        """Close a channel that is dead; its calls fail, and the next request opens another."""
        self._left(channel)
        channel.abort()

    def _retire(self, channel: Channel) -> None:
        if self._open.get(channel.address) is channel:
            del self._open[channel.address]
        channel.retire()

    def _left(self, channel: Channel) -> None:
        self._all.discard(channel)
        if not self._all:
            self._empty.set()
        if self._open.get(channel.address) is channel:
            del self._open[channel.address]
            self._lost(channel.address, channel.lost_reason)


def _ignore_failure(task: asyncio.Task[Any]) -> None:
    """No caller may wait for it any more."""
    if not task.cancelled():
        task.exception()


def host_port(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 address may be in brackets. ConfigError."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"an address must be `host:port`, not {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
