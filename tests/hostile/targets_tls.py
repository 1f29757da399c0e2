"""TLS as a peer sends it: handshakes, and records after one, to a poller of the broker."""

import asyncio
import contextlib
import functools
import socket
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.poller import EpollPoller
from firearrow._native.wire.tls_session import TlsContext
from tests.hostile.fuzz import Target
from tests.support.certificates import CertificateFiles
from tests.support.connections import Echo, run_once

PASSES = 6
CUT_BYTES = 700


class Host:
    """A poller that accepts TLS, on a loop of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.poller = EpollPoller(self.loop)
        with TemporaryDirectory() as folder:
            files = CertificateFiles(Path(folder))
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(files.path("server.pem"), files.path("server.key"))
            self.client = files.client()
        self.tls = TlsContext(server, enforcing=False)

    def open(self) -> tuple[Echo, socket.socket]:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        echo = Echo(self.loop, 0)
        self.poller.add(ours, echo, self.tls)
        return echo, theirs

    def turn(self, times: int = PASSES) -> None:
        for _ in range(times):
            run_once(self.loop)

    def close(self, echo: Echo, theirs: socket.socket) -> None:
        """The peer ends the connection: nothing of it is left, and nothing failed that should not."""
        theirs.close()
        self.turn()
        assert echo.losses == 1
        assert not self.poller.handshakes
        assert not self.faults, self.faults


@functools.cache
def host() -> Host:
    return Host()


@functools.cache
def hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = host().client.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def read_handshake(data: bytes) -> None:
    """In two parts, cut where the first byte says."""
    echo, theirs = host().open()
    cut = 1 + data[0] if data else 0
    for part in (data[:cut], data[cut:]):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            theirs.send(part)
        host().turn()
    host().close(echo, theirs)


def read_records(data: bytes) -> None:
    """After a handshake: a good request, whose answer must come, then these bytes as they are."""
    echo, theirs = host().open()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = host().client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        theirs.send(outgoing.read() or b"")
        host().turn()
        with contextlib.suppress(BlockingIOError):
            incoming.write(theirs.recv(1 << 16))
    request = RemotingCommand.request(11, {}, body=bytes(100))
    tls.write(request.encode())
    theirs.send(outgoing.read())
    host().turn()
    assert len(echo.commands) == 1
    with contextlib.suppress(BlockingIOError):
        incoming.write(theirs.recv(1 << 16))
    assert tls.read(1 << 16)
    for at in range(0, len(data), CUT_BYTES):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            theirs.send(data[at : at + CUT_BYTES])
        host().turn(2)
    assert len(echo.commands) == 1, "bytes that no key has sealed were accepted"
    host().close(echo, theirs)


def records() -> list[bytes]:
    sealed = b"\x17\x03\x03\x00\x40" + bytes(64)
    return [sealed, sealed * 20, b"\x15\x03\x03\x00\x02\x01\x00", b"\x14\x03\x03\x00\x01\x01", hello()]


TLS = (
    Target("tls handshake", lambda: [hello(), hello()[:100]], read_handshake),
    Target("tls records", records, read_records),
)
