"""One line of JSON for each event on standard output, which is the history's file; written before the event happens.

The events and their members are listed in `tests/history/events.py`.
"""

import random
import sys
import time
import zlib

import orjson

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import SendResult

LARGE_BYTES = 20_000
MANY_BYTES = 900


def emit(event: str, **members: object) -> None:
    sys.stdout.buffer.write(orjson.dumps({"event": event, **members}) + b"\n")
    sys.stdout.buffer.flush()


def body_of(name: str, draw: random.Random) -> bytes:
    """`name|` and filler; one in fifty is large enough to be compressed."""
    size = LARGE_BYTES if draw.random() < 0.02 else draw.randrange(MANY_BYTES)
    return name.encode() + b"|" + bytes(draw.randrange(256) for _ in range(8)) * (size // 8)


def emit_send(name: str, topic: str, body: bytes, **more: object) -> None:
    """`more`: `copies`, `kind`, `fate`, if they differ from the defaults."""
    emit("send", id=name, topic=topic, crc=zlib.crc32(body), size=len(body), **more)


def emit_sent(name: str, result: SendResult, index: int = 0) -> None:
    """`index`: the message's number in its batch."""
    emit(
        "sent",
        id=name,
        status=result.status.name,
        queue=result.queue.queue_id,
        offset=result.queue_offset + index,
    )


def emit_got(group: str, message: ReceivedMessage, *, ok: bool = True, **more: object) -> None:
    body = message.body
    emit(
        "got",
        group=group,
        topic=message.topic,
        queue=message.queue_id,
        offset=message.queue_offset,
        id=body.split(b"|", 1)[0].decode("ascii", "replace"),
        crc=zlib.crc32(body),
        size=len(body),
        times=message.reconsume_times,
        ok=ok,
        at=time.time_ns(),
        **more,
    )
