"""Records as brokers send them, for answers that a test makes."""

import struct
from collections.abc import Iterable

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow.client.base.message import MessageQueue

HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)


def record(
    body: bytes,
    topic: str = "T",
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    reconsume_times: int = 0,
    **properties: str,
) -> bytes:
    """One message, not compressed; `TAGS="a"` and the like are its properties."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    name = topic.encode()
    rest = struct.pack(">iiiqqiq", 0, queue_id, 0, queue_offset, 4096 + queue_offset, 0, 1000) + HOST
    rest += struct.pack(">q", 2000) + HOST + struct.pack(">iqi", reconsume_times, 0, len(body)) + body
    rest += struct.pack(">B", len(name)) + name + struct.pack(">h", len(text)) + text
    return struct.pack(">ii", 8 + len(rest), -626843481) + rest


def received(
    queue: MessageQueue,
    offsets: Iterable[int],
    body: bytes = b"body",
    reconsume_times: int = 0,
    **properties: str,
) -> list[ReceivedMessage]:
    """What a pull of the queue would return."""
    records = b"".join(
        record(
            body,
            queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            reconsume_times=reconsume_times,
            **properties,
        )
        for offset in offsets
    )
    return decode_messages(records, queue.broker_name, lambda sys_flag, stored: stored, queue=queue)
