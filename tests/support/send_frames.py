"""Frames of producers that send to topic T, by opaque."""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand


def plain(
    opaque: int, *, topic: str = "T", queue_id: int = 0, oneway: bool = False, **properties: str
) -> bytes:
    pairs = {"UNIQ_KEY": f"{opaque:032X}"} | properties
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    return _send(RequestCode.SEND_MESSAGE_V2, opaque, topic, queue_id, b"body", text=text, oneway=oneway)


def batch(opaque: int, items: bytes, *, queue_id: int) -> bytes:
    return _send(RequestCode.SEND_BATCH_MESSAGE, opaque, "T", queue_id, items)


def _send(
    code: int, opaque: int, topic: str, queue_id: int, body: bytes, *, text: str = "", oneway: bool = False
) -> bytes:
    many = str(code == RequestCode.SEND_BATCH_MESSAGE).lower()
    fields = ("P", topic, "TBW102", "4", str(queue_id), "0", "1", "0", text, "0", "false", many)
    ext = dict(zip("abcdefghijkm", fields, strict=True))
    command = RemotingCommand.request(code, ext, body, oneway=oneway)
    command.opaque = opaque
    return command.encode()


def keyless(opaque: int) -> bytes:
    command = RemotingCommand.decode(plain(opaque))
    command.ext["i"] = "K\x01v\x02"
    return command.encode()


def delayed(opaque: int) -> bytes:
    """A frame that the fast path does not take."""
    return plain(opaque, DELAY="1")
