"""SocksProxies: which addresses are reached through a SOCKS5 proxy, and connecting there. Loop thread.

Needs the package `python-socks`, imported when first used.
"""

import ipaddress
import socket
from collections.abc import Mapping
from importlib import import_module

from firearrow.client.base.errors import ConfigError, ConnectFailed
from firearrow.client.base.options import SocksProxy

ANY_HOST = "*"


class SocksProxies:
    """By network (`10.0.0.0/8`) or `*`; the first that holds a host's address is its proxy. ConfigError."""

    def __init__(self, proxies: Mapping[str, SocksProxy]) -> None:
        self._proxies = [(_network(pattern), proxy) for pattern, proxy in proxies.items()]

    def of(self, host: str) -> SocksProxy | None:
        """Hosts that are given by name match `*` only: it is the proxy that looks them up."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        for network, proxy in self._proxies:
            if network is None or (address is not None and address in network):
                return proxy
        return None


async def connect_through(proxy: SocksProxy, host: str, port: int, timeout_s: float) -> socket.socket:
    """A socket that the proxy has connected. ConnectFailed, ConfigError: the package is missing."""
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
        raise ConnectFailed(f"{host}:{port} through the proxy {proxy.address}: {error}") from error
    return connected


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if pattern == ANY_HOST:
        return None
    try:
        return ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        raise ConfigError(f"socks_proxies: {pattern!r} is neither a network (`10.0.0.0/8`) nor `*`") from None
