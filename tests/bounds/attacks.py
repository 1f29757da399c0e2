"""Attacks on the sockets: each opens what it needs, does its harm, and hands the crowd back while it still stands.

Run by `attacker`, a process of its own, so that a bystander's clock does not wait for the attacker.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.bounds.crowd import Address, Crowd
from tests.process.requests import pull_ext, send_ext


@dataclass(frozen=True)
class Field:
    """Where it happens and how much: connections, and seconds of harm."""

    broker: Address
    name_server: Address
    connections: int
    seconds: float

    def crowd(self, count: int | None = None, *, receive_bytes: int | None = None) -> Crowd:
        """Some of the connections, or all."""
        crowd = Crowd()
        wanted = self.connections if count is None else min(count, self.connections)
        crowd.join(self.broker, wanted, receive_bytes=receive_bytes)
        return crowd


Attack = Callable[[Field], Crowd]


def request(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, opaque: int = 0, flag: int = 0
) -> bytes:
    return RemotingCommand(code, ext or {}, body, opaque=opaque, flag=flag).encode()


def silent(field: Field) -> Crowd:
    """They connect and never say a word."""
    return field.crowd()


def half_open(field: Field) -> Crowd:
    """They say half of a frame, and then that they have no more to say; or go away with a reset."""
    half_of_them = field.connections // 2
    crowd, gone = field.crowd(half_of_them), field.crowd(half_of_them)
    half = request(RequestCode.SEND_MESSAGE_V2, send_ext("Half"), bytes(4000))[:2000]
    gone.say(half)
    gone.hang_up(reset=True)
    crowd.say(half)
    for each in crowd:
        crowd.shut(each)
    return crowd


def slow_loris(field: Field) -> Crowd:
    """A byte each now and then, of frames that never end."""
    crowd = field.crowd()
    drip = request(RequestCode.SEND_MESSAGE_V2, send_ext("Drip"), bytes(1 << 20))
    until = time.monotonic() + field.seconds
    for byte in itertools.islice(drip, 200):
        if time.monotonic() > until:
            break
        crowd.say(bytes([byte]))
        time.sleep(field.seconds / 200)
    return crowd


def almost_whole(field: Field) -> Crowd:
    """Frames of 16 MiB of which the last byte is missing."""
    crowd = field.crowd(max(field.connections // 20, 10))
    whole = request(RequestCode.SEND_MESSAGE_V2, send_ext("Almost"), bytes((16 << 20) - 4096))
    crowd.say(whole[:-1], within_s=max(5.0, field.seconds))
    return crowd


def almost_small(field: Field) -> Crowd:
    """Frames of 128 KB of which the last byte is missing, from everybody."""
    crowd = field.crowd()
    crowd.say(request(RequestCode.SEND_MESSAGE_V2, send_ext("Almost"), bytes(127_000))[:-1])
    return crowd


def deaf(field: Field) -> Crowd:
    """They ask for very much and read nothing."""
    with_message = field.crowd(1)
    with_message.say(request(RequestCode.SEND_MESSAGE_V2, send_ext("DeafAttack"), bytes(200_000)))
    time.sleep(0.1)
    with_message.hang_up()
    crowd = field.crowd(receive_bytes=4096)
    pulls = b"".join(request(RequestCode.PULL_MESSAGE, pull_ext("DeafAttack"), opaque=n) for n in range(100))
    crowd.say(pulls, within_s=max(5.0, field.seconds))
    time.sleep(field.seconds / 4)
    return crowd


def unread_answers(field: Field) -> Crowd:
    """Small questions without end, and nobody reads the answers."""
    crowd = field.crowd(receive_bytes=4096)
    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO) * 200
    until = time.monotonic() + field.seconds
    while time.monotonic() < until:
        crowd.say(asked, within_s=min(1.0, field.seconds))
    return crowd


def churn(field: Field) -> Crowd:
    """Connections that come and go as fast as they can, some with a question on the lips."""
    until = time.monotonic() + field.seconds
    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO)
    for n in itertools.count():
        if time.monotonic() > until:
            break
        crowd = field.crowd(200)
        if n % 2:
            crowd.say(asked)
        crowd.hang_up(reset=n % 3 == 0)
    return Crowd()


def other_protocols(field: Field) -> Crowd:
    """TLS, HTTP, wrong byte order, and what Redis, Kafka and SSH say first."""
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
    crowd = Crowd()
    for word in words:
        part = Crowd()
        part.join(field.broker, max(field.connections // len(words), 1))
        part.say(word)
        crowd.members += part.members
    return crowd


def one_ways(field: Field) -> Crowd:
    """Requests that want no answer, as many as go through."""
    crowd = field.crowd(20)
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
        crowd.say(flood * 100, within_s=1.0)
    return crowd


SOCKETS: dict[str, Attack] = {
    each.__name__: each
    for each in (
        silent, half_open, slow_loris, almost_whole, almost_small, deaf, unread_answers, churn, other_protocols,
        one_ways,
    )
}  # fmt: skip
