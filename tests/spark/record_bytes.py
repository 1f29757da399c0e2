"""Records as in a log, made by hand: input for the native code where no store is needed."""

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from firearrow._native.columnar.record_spans import Spans, from_answer

HOST_V4, HOST_V6 = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F)), bytes(15) + b"\x01" + bytes((0, 0, 0x2A, 0x9F))
BORN_MS, STORED_MS = 1_700_000_000_000, 1_700_000_000_777


def properties_bytes(properties: dict[str, str], *, ended: bool = True) -> bytes:
    """Apache 4.9.7 and 5.1.4 leave out the last separator: `ended=False`."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    return text if ended else text[:-1]


@dataclass(frozen=True, slots=True)
class Fields:
    """Of a record besides body and properties; both hosts are IPv6 if `v6`."""

    topic: str = "Orders"
    queue_id: int = 3
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = BORN_MS
    stored_ms: int = STORED_MS
    reconsume_times: int = 0
    v6: bool = False


def record_bytes(body: bytes, properties: bytes = b"", **fields: Any) -> bytes:  # noqa: ANN401
    """A V1 record; `fields` are those of `Fields`."""
    of = Fields(**fields)
    host = HOST_V6 if of.v6 else HOST_V4
    name = of.topic.encode()
    rest = struct.pack(
        ">Iiiqqiq",
        zlib.crc32(body) & 0x7FFFFFFF,
        of.queue_id,
        of.flag,
        of.queue_offset,
        of.physical_offset,
        of.sys_flag | (0x30 if of.v6 else 0),
        of.born_ms,
    )
    rest += host + struct.pack(">q", of.stored_ms) + host
    rest += struct.pack(">iqi", of.reconsume_times, 0, len(body))
    rest += body + bytes((len(name),)) + name + struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", 8 + len(rest), 0xDAA320A7) + rest


def spans_of(*records: bytes) -> Spans:
    return from_answer(b"".join(records))
