"""Records as brokers send them, for answers that a test makes up."""

import struct

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
