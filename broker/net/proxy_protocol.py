"""The PROXY protocol of HAProxy, versions 1 and 2: a connection's real addresses, sent before its first byte.

Source: HAProxy's proxy-protocol.txt; Apache's NettyRemotingServer (HandshakeHandler, HAProxyMessageHandler), which
takes the header from any address. Here only trusted ones may send one: a client could choose its own address with it.
The header comes before TLS. It is looked at in the socket's buffer and taken from it whole, so what follows stays there
for what serves the connection. Loop thread.
"""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import NamedTuple

from firearrow._native.base.hash import crc32c
from firearrow.broker.base.peer import Address, ip_text

log = logging.getLogger("firearrow.server")

SIGNATURE_1 = b"PROXY "
SIGNATURE_2 = b"\r\n\r\n\0\r\nQUIT\n"
PREFIX_BYTES = 4
FIRST_BYTES = SIGNATURE_1[:PREFIX_BYTES], SIGNATURE_2[:PREFIX_BYTES]
"""No frame, TLS handshake or request of HTTP begins with them."""
LINE_BYTES_MAX = 107
"""Of a header of version 1, its end included."""
HEAD_BYTES = 16
HEADER_BYTES_MAX = 4096
"""Of a header of version 2 with its type-length-values; 65,551 by its format."""
HEADER_S = 10.0
"""Time for the header, once its first byte has come."""
WAITING_MAX = 1024
"""Connections of trusted addresses whose first byte or header is awaited; the oldest are closed."""
FAMILIES = {1: (socket.AF_INET, 4), 2: (socket.AF_INET6, 16)}
UNIX, UNIX_BYTES = 3, 216
TLV_CRC32C = 3
PORT = re.compile(rb"0|[1-9][0-9]{0,4}")
Networks = tuple[IPv4Network | IPv6Network, ...]


class Forwarded(NamedTuple):
    """The ends of the connection to the proxy: the client, and where the client reached the proxy."""

    source: Address
    destination: Address


class Header(NamedTuple):
    """`forwarded` None: the connection is the proxy's own, or its addresses are of another kind."""

    bytes: int
    forwarded: Forwarded | None


NO_HEADER = Header(0, None)


def parse(data: bytes) -> Header | int:
    """The header at the start of what was received. An integer: how many bytes are needed to go on. ValueError: a
    header that is not valid."""
    if data.startswith(SIGNATURE_1):
        return _parse_1(data)
    if data.startswith(SIGNATURE_2):
        return _parse_2(data)
    if SIGNATURE_1.startswith(data) or SIGNATURE_2.startswith(data):
        return len(data) + 1
    return NO_HEADER


def _parse_1(data: bytes) -> Header | int:
    end = data.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise ValueError(f"its line is longer than {LINE_BYTES_MAX} bytes")
        return len(data) + 1
    words = data[len(SIGNATURE_1) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return Header(end + 2, None)
    if words[0] not in (b"TCP4", b"TCP6") or len(words) != 5:
        raise ValueError(f"its line is {data[:end]!r}")
    family = socket.AF_INET if words[0] == b"TCP4" else socket.AF_INET6
    hosts = [_host(family, word) for word in words[1:3]]
    ports = [_port(word) for word in words[3:5]]
    return Header(end + 2, Forwarded((hosts[0], ports[0]), (hosts[1], ports[1])))


def _host(family: socket.AddressFamily, word: bytes) -> str:
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, word.decode("ascii")))
    except (OSError, ValueError):
        raise ValueError(f"{word!r} is not an address of its family") from None


def _port(word: bytes) -> int:
    if not PORT.fullmatch(word) or int(word) > 65535:
        raise ValueError(f"{word!r} is not a port")
    return int(word)


def _parse_2(data: bytes) -> Header | int:
    if len(data) < HEAD_BYTES:
        return HEAD_BYTES
    command, kind, length = struct.unpack_from(">BBH", data, len(SIGNATURE_2))
    size: int = HEAD_BYTES + length
    if command not in (0x20, 0x21):
        raise ValueError(f"its version and command are {command:#04x}")
    if size > HEADER_BYTES_MAX:
        raise ValueError(f"it has {size} bytes, at most {HEADER_BYTES_MAX} are accepted")
    if len(data) < size:
        return size
    if command == 0x20:  # LOCAL: a health check of the proxy's
        return Header(size, None)
    family, protocol = kind >> 4, kind & 0xF
    if family > UNIX or protocol > 2:
        raise ValueError(f"its family and protocol are {kind:#04x}")
    if family == 0 or protocol == 0:  # not specified; the rest has no known form
        return Header(size, None)
    of_family, host_bytes = FAMILIES.get(family, (None, 0))
    address_bytes = UNIX_BYTES if of_family is None else 2 * host_bytes + 4
    if length < address_bytes:
        raise ValueError(f"it has {length} bytes of addresses, its family has {address_bytes}")
    _check_values(data[:size], HEAD_BYTES + address_bytes)
    if of_family is None:
        return Header(size, None)
    hosts, at = [], HEAD_BYTES
    for _ in range(2):
        hosts.append(socket.inet_ntop(of_family, data[at : at + host_bytes]))
        at += host_bytes
    ports = struct.unpack_from(">HH", data, at)
    return Header(size, Forwarded((hosts[0], ports[0]), (hosts[1], ports[1])))


def _check_values(header: bytes, at: int) -> None:
    """The type-length-values from `at` on, none of which means anything here but the checksum. ValueError."""
    while at < len(header):
        if at + 3 > len(header):
            raise ValueError("its last value is not complete")
        kind, length = struct.unpack_from(">BH", header, at)
        at += 3
        if at + length > len(header):
            raise ValueError("its last value is not complete")
        if kind == TLV_CRC32C:
            if length != 4:
                raise ValueError("its checksum does not have 4 bytes")
            given = int.from_bytes(header[at : at + 4], "big")
            if crc32c(header[:at] + bytes(4) + header[at + 4 :]) != given:
                raise ValueError("its checksum is wrong")
        at += length


class ProxyHeaders:
    """Takes the header from connections of the `trusted` networks before they are served.

    `first_byte_s()`: how long such a connection may be silent before its first byte.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, first_byte_s: Callable[[], float]) -> None:
        self.trusted: Networks = ()
        self._loop = loop
        self._first_byte_s = first_byte_s
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}

    def accept(
        self, accepted: socket.socket, serve: Callable[[socket.socket, Forwarded | None], object]
    ) -> None:
        """Call `serve`, which owns the socket then; later if the peer may send a header. OSError."""
        if not self.trusted or not self._trusts(accepted):
            serve(accepted, None)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._take(accepted, serve))
        self._waiting[task] = accepted
        task.add_done_callback(self._taken)
        if len(self._waiting) > WAITING_MAX:
            next(iter(self._waiting)).cancel()

    def close(self) -> None:
        """Close the connections that are not served yet."""
        for task in list(self._waiting):
            task.cancel()

    def _trusts(self, accepted: socket.socket) -> bool:
        address = ip_address(ip_text(accepted.getpeername()[0]))
        return any(address in network for network in self.trusted)

    async def _take(
        self, accepted: socket.socket, serve: Callable[[socket.socket, Forwarded | None], object]
    ) -> None:
        try:
            peer = accepted.getpeername()[:2]
            await _readable(self._loop, accepted, self._first_byte_s())
            async with asyncio.timeout(HEADER_S):
                header = await self._header(accepted)
            if header.bytes:
                accepted.recv(header.bytes)
        except ValueError as error:
            log.info("closed %s:%d: its PROXY protocol header is not valid: %s", *peer, error)
            return accepted.close()
        except (OSError, TimeoutError) as error:
            log.debug("a connection of a proxy was closed before it was served: %s", error)
            return accepted.close()
        except BaseException:
            accepted.close()
            raise
        try:
            serve(accepted, header.forwarded)
        except OSError as error:  # the peer has closed it already
            log.debug("a connection was closed before it was served: %s", error)
            accepted.close()
        return None

    async def _header(self, accepted: socket.socket) -> Header:
        """OSError: the connection ends within it."""
        before = 0
        while True:
            data = accepted.recv(HEADER_BYTES_MAX, socket.MSG_PEEK)
            if len(data) <= before:
                raise ConnectionResetError("closed within its PROXY protocol header")
            found = parse(data)
            accepted.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 if isinstance(found, Header) else found
            )
            if isinstance(found, Header):
                return found
            before = len(data)
            await _readable(self._loop, accepted, HEADER_S)

    def _taken(self, task: asyncio.Task[None]) -> None:
        accepted = self._waiting.pop(task)
        if task.cancelled():  # perhaps before it began
            accepted.close()
        elif (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a connection was not served", "exception": error})


async def _readable(loop: asyncio.AbstractEventLoop, accepted: socket.socket, within_s: float) -> None:
    """Wait for as many bytes as SO_RCVLOWAT asks for, or the end. TimeoutError."""
    readable = asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        async with asyncio.timeout(within_s):
            await readable.wait()
    finally:
        loop.remove_reader(accepted)
