"""Attacks on the sockets: each opens what it needs, attacks, and returns the sockets while they are still open.

Run by `attacker`, a separate process, so that the background client's measurements do not include the attacker.
"""

import contextlib
import itertools
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import sign
from tests.hostile.attack_sockets import Address, AttackSockets
from tests.support.requests import pull_ext, send_ext


@dataclass(frozen=True)
class Field:
    """Where to attack and how much: connections, and seconds. `tls`: most attacks go through TLS."""

    broker: Address
    name_server: Address
    connections: int
    seconds: float
    tls: ssl.SSLContext | None = None

    def open_sockets(self, count: int | None = None, *, receive_bytes: int | None = None) -> AttackSockets:
        """Some of the connections, or all."""
        sockets = AttackSockets(self.tls)
        wanted = self.connections if count is None else min(count, self.connections)
        sockets.join(self.broker, wanted, receive_bytes=receive_bytes)
        return sockets


Attack = Callable[[Field], AttackSockets]


_keys: list[tuple[str, str]] = []


def sign_as(user: str, password: str) -> None:
    """Sign all requests of this process from now on."""
    _keys[:] = [(user, password)]


def request(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, opaque: int = 0, flag: int = 0
) -> bytes:
    command = RemotingCommand(code, ext or {}, body, opaque=opaque, flag=flag)
    for keys in _keys:
        sign(command, *keys)
    return command.encode()


def silent(field: Field) -> AttackSockets:
    """They connect and send nothing."""
    return field.open_sockets()


def half_open(field: Field) -> AttackSockets:
    """They send half of a frame and then shut down or reset the connection."""
    half_of_them = field.connections // 2
    sockets, gone = field.open_sockets(half_of_them), field.open_sockets(half_of_them)
    half = request(RequestCode.SEND_MESSAGE_V2, send_ext("Half"), bytes(4000))[:2000]
    gone.send(half)
    gone.close(reset=True)
    sockets.send(half)
    for each in sockets:
        sockets.shut_down(each)
    return sockets


def slow_loris(field: Field) -> AttackSockets:
    """A byte from time to time, of frames that never end."""
    sockets = field.open_sockets()
    drip = request(RequestCode.SEND_MESSAGE_V2, send_ext("Drip"), bytes(1 << 20))
    until = time.monotonic() + field.seconds
    for byte in itertools.islice(drip, 200):
        if time.monotonic() > until:
            break
        sockets.send(bytes([byte]))
        time.sleep(field.seconds / 200)
    return sockets


def almost_whole(field: Field) -> AttackSockets:
    """Frames of 16 MiB without their last byte."""
    sockets = field.open_sockets(max(field.connections // 20, 10))
    whole = request(RequestCode.SEND_MESSAGE_V2, send_ext("Almost"), bytes((16 << 20) - 4096))
    sockets.send(whole[:-1], within_s=max(5.0, field.seconds))
    return sockets


def almost_small(field: Field) -> AttackSockets:
    """Frames of 128 KB without their last byte, on all connections."""
    sockets = field.open_sockets()
    sockets.send(request(RequestCode.SEND_MESSAGE_V2, send_ext("Almost"), bytes(127_000))[:-1])
    return sockets


def deaf(field: Field) -> AttackSockets:
    """They request very much and read nothing."""
    with_message = field.open_sockets(1)
    with_message.send(request(RequestCode.SEND_MESSAGE_V2, send_ext("DeafAttack"), bytes(200_000)))
    time.sleep(0.1)
    with_message.close()
    sockets = field.open_sockets(receive_bytes=4096)
    pulls = b"".join(request(RequestCode.PULL_MESSAGE, pull_ext("DeafAttack"), opaque=n) for n in range(100))
    sockets.send(pulls, within_s=max(5.0, field.seconds))
    time.sleep(field.seconds / 4)
    return sockets


def unread_answers(field: Field) -> AttackSockets:
    """Small requests without end; the responses are not read."""
    sockets = field.open_sockets(receive_bytes=4096)
    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO) * 200
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(asked, within_s=min(1.0, field.seconds))
    return sockets


def churn(field: Field) -> AttackSockets:
    """Connections that are opened and closed as fast as possible, some with a request in flight."""
    until = time.monotonic() + field.seconds
    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO)
    for n in itertools.count():
        if time.monotonic() > until:
            break
        sockets = field.open_sockets(200)
        if n % 2:
            sockets.send(asked)
        sockets.close(reset=n % 3 == 0)
    return AttackSockets()


def other_protocols(field: Field) -> AttackSockets:
    """TLS, HTTP, wrong byte order, and the first bytes of Redis, Kafka and SSH."""
    right = request(RequestCode.SEND_MESSAGE_V2, send_ext("Endian"), b"x")
    words = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        right[:4][::-1] + right[4:8][::-1] + right[8:],
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x05admin\x00\x00\x00\x00\x00",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 4096,
        b"\xff" * 4096,
    )
    sockets = AttackSockets()
    for word in words:
        part = AttackSockets()
        part.join(field.broker, max(field.connections // len(words), 1))
        part.send(word)
        sockets.members += part.members
    return sockets


def handshakes(field: Field) -> AttackSockets:
    """TLS handshakes that end with the ClientHello, as many as possible: the broker makes and signs keys for each."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    until = time.monotonic() + field.seconds
    sockets = AttackSockets()
    while time.monotonic() < until:
        sockets.close()
        sockets = AttackSockets()
        sockets.join(field.broker, field.connections)
        sockets.send(hello)
    return sockets


def one_ways(field: Field) -> AttackSockets:
    """One-way requests, as many as possible."""
    sockets = field.open_sockets(20)
    flood = b"".join(
        request(code, ext, b"{}" if code == RequestCode.HEART_BEAT else b"x" * 100, flag=2)
        for code, ext in (
            (RequestCode.SEND_MESSAGE_V2, send_ext("Flooded")),
            (RequestCode.HEART_BEAT, {}),
            (9999, {}),
            (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
        )
    )
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        sockets.send(flood * 100, within_s=1.0)
    return sockets


SOCKETS: dict[str, Attack] = {
    each.__name__: each
    for each in (
        silent,
        half_open,
        slow_loris,
        almost_whole,
        almost_small,
        deaf,
        unread_answers,
        churn,
        other_protocols,
        handshakes,
        one_ways,
    )
}
