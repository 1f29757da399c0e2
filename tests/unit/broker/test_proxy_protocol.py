"""The headers of the PROXY protocol: what is taken, what is refused, and that nothing else passes."""

import asyncio
import socket
import struct
from contextlib import ExitStack
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.base.hash import crc32c
from firearrow.broker.net import proxy_protocol
from firearrow.broker.net.proxy_protocol import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    NO_HEADER,
    SIGNATURE_2,
    Forwarded,
    Header,
    ProxyHeaders,
    parse,
)

V4 = Forwarded(("192.0.2.7", 4711), ("198.51.100.1", 10911))
V6 = Forwarded(("2001:db8::7", 4711), ("2001:db8::1", 10911))
PACKED_4 = socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.1") + struct.pack(">HH", 4711, 10911)
PACKED_6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 4711, 10911)
)


def version_2(kind: int, rest: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE_2 + struct.pack(">BBH", command, kind, len(rest)) + rest


def with_checksum(wrong: int = 0) -> bytes:
    header = version_2(0x11, PACKED_4 + b"\x04\0\2\0\0" + b"\x03\0\4" + bytes(4))
    return header[:-4] + (crc32c(header) ^ wrong).to_bytes(4, "big")


TAKEN = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 10911\r\n", V4),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 10911\r\n", V6),
    (b"PROXY TCP6 2001:DB8:0:0:0:0:0:7 2001:db8::1 4711 10911\r\n", V6),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    (b"PROXY UNKNOWN " + b"x" * (LINE_BYTES_MAX - 16) + b"\r\n", None),
    (version_2(0x11, PACKED_4), V4),
    (version_2(0x12, PACKED_4), V4),
    (version_2(0x21, PACKED_6), V6),
    (version_2(0x21, PACKED_6 + b"\x02\0\4a.io\xee\0\0"), V6),
    (version_2(0x11, PACKED_4 + b"\x01\x0f\xd0" + bytes(0xFD0 - 0)), None),
    (with_checksum(), V4),
    (version_2(0x31, bytes(216)), None),
    (version_2(0x00, b""), None),
    (version_2(0x00, b"anything"), None),
    (version_2(0x10, PACKED_4), None),
    (version_2(0x01, b"\xff"), None),
    (version_2(0x00, b"", command=0x20), None),
    (version_2(0x11, PACKED_4, command=0x20), None),
    (version_2(0xFF, b"x", command=0x20), None),
]
TAKEN[10] = (version_2(0x11, PACKED_4 + b"\x01" + struct.pack(">H", 4061) + bytes(4061)), V4)
assert len(TAKEN[10][0]) <= HEADER_BYTES_MAX

REFUSED = [
    b"PROXY \r\n",
    b"PROXY TCP4\r\n",
    b"PROXY TCP5 192.0.2.7 198.51.100.1 4711 10911\r\n",
    b"PROXY tcp4 192.0.2.7 198.51.100.1 4711 10911\r\n",
    b"PROXY TCP4  192.0.2.7 198.51.100.1 4711 10911\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 10911 \r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 04711 10911\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 10911\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 10911\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 \xb2 10911\r\n",
    b"PROXY TCP4 192.0.2 198.51.100.1 4711 10911\r\n",
    b"PROXY TCP4 192.0.2.007 198.51.100.1 4711 10911\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 4711 10911\r\n",
    b"PROXY TCP6 192.0.2.7 198.51.100.1 4711 10911\r\n",
    b"PROXY TCP6 fe80::1%eth0 2001:db8::1 4711 10911\r\n",
    b"PROXY UNKNOWN " + b"x" * (LINE_BYTES_MAX - 15) + b"\r\n",
    b"PROXY " + b"x" * LINE_BYTES_MAX,
    b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 10911\n" + b" " * LINE_BYTES_MAX,
    version_2(0x11, PACKED_4, command=0x11),
    version_2(0x11, PACKED_4, command=0x22),
    version_2(0x11, PACKED_4[:-1]),
    version_2(0x21, PACKED_4),
    version_2(0x31, bytes(215)),
    version_2(0x41, PACKED_6),
    version_2(0x13, PACKED_4),
    version_2(0x11, PACKED_4 + b"\x01"),
    version_2(0x11, PACKED_4 + b"\x01\0\5abcd"),
    version_2(0x11, PACKED_4 + b"\x03\0\3abc"),
    with_checksum(wrong=1),
    SIGNATURE_2 + struct.pack(">BBH", 0x21, 0x11, HEADER_BYTES_MAX - 15),
    SIGNATURE_2 + struct.pack(">BBH", 0x20, 0x11, 0xFFFF),
]
FOREIGN = [
    b"\0\0\1\2{}",
    b"\x16\3\1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"PUT /",
    b"POST /",
    b"PROXX",
    b"\r\n\r\nx",
    b"\n",
]


@pytest.mark.parametrize(("header", "forwarded"), TAKEN)
def test_a_header_is_taken_whole_and_asks_for_more_until_then(
    header: bytes, forwarded: Forwarded | None
) -> None:
    assert parse(header) == Header(len(header), forwarded)
    assert parse(header + b"\0\0\1\2PROXY TCP4") == Header(len(header), forwarded)
    for cut in range(1, len(header)):
        more = parse(header[:cut])
        assert isinstance(more, int)
        assert cut < more <= len(header)


@pytest.mark.parametrize("header", REFUSED)
def test_a_header_that_is_not_valid_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|port"):
        parse(header)


@pytest.mark.parametrize("data", FOREIGN)
def test_what_is_no_header_stays(data: bytes) -> None:
    assert parse(data) == NO_HEADER


@given(
    st.sampled_from([header for header, _ in TAKEN] + REFUSED),
    st.integers(0, HEADER_BYTES_MAX),
    st.binary(max_size=8),
    st.integers(0, HEADER_BYTES_MAX),
)
def test_any_change_is_taken_refused_or_asks_for_a_bounded_length(
    header: bytes, at: int, change: bytes, cut: int
) -> None:
    at %= len(header) + 1
    data = (header[:at] + change + header[at + len(change) :])[: cut + 1] or b"x"
    try:
        found = parse(data)
    except ValueError:
        return
    if isinstance(found, Header):
        assert found.bytes <= len(data)
    else:
        assert len(data) < found <= HEADER_BYTES_MAX


def test_waiting_connections_are_bounded_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_protocol, "WAITING_MAX", 2)
    monkeypatch.setattr(proxy_protocol, "HEADER_S", 0.2)
    asyncio.run(asyncio.wait_for(_waiting_connections(), 20))


async def _waiting_connections() -> None:
    loop, served, silent_s = asyncio.get_running_loop(), list[Forwarded | None](), [3600.0]

    def serve(accepted: socket.socket, forwarded: Forwarded | None) -> None:
        served.append(forwarded)
        accepted.close()

    headers = ProxyHeaders(loop, lambda: silent_s[0])
    headers.trusted = (ip_network("127.0.0.0/8"),)
    with ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as listening:

        def connect(first: bytes) -> socket.socket:
            client = opened.enter_context(socket.create_connection(listening.getsockname()))
            client.sendall(first)
            client.setblocking(False)
            headers.accept(listening.accept()[0], serve)
            return client

        async def closed(client: socket.socket) -> bool:
            try:
                return await loop.sock_recv(client, 1) == b""
            except ConnectionResetError:  # with bytes that were not read
                return True

        silent = [connect(b"") for _ in range(3)]
        assert await closed(silent[0])  # the oldest of three
        partial = connect(TAKEN[0][0][:20])
        assert await closed(silent[1])
        assert await closed(partial)  # after HEADER_S
        silent_s[0] = 0.1
        assert await closed(connect(b""))
        assert await closed(connect(TAKEN[0][0]))
        assert served == [V4]
        headers.close()
        assert await closed(silent[2])
