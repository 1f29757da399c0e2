"""A stored record as a popping client is to see it: another topic, and its receipt as a property. Pure.

Only messages of retry topics are written anew; all others go out as they stand in the log.
"""

import struct

from firearrow.broker.base.message import Property

SYS_FLAG_AT, BODY_AT_V4 = 36, 84
BORN_V6, STORE_V6 = 0x10, 0x20
HOST_V6_MORE = 12
MAGIC_V1 = struct.pack(">i", -626843481)
_I32, _I16 = struct.Struct(">i"), struct.Struct(">h")


def rewrite_record(record: bytes, topic: str, receipt_handle: str) -> bytes:
    """`record`, checked before, under `topic`, a name of at most 127 bytes; a receipt that it carries already stays."""
    (sys_flag,) = _I32.unpack_from(record, SYS_FLAG_AT)
    at = BODY_AT_V4 + HOST_V6_MORE * (bool(sys_flag & BORN_V6) + bool(sys_flag & STORE_V6))
    body_end = at + 4 + _I32.unpack_from(record, at)[0]
    if record[4:8] == MAGIC_V1:
        properties_at = body_end + 1 + record[body_end]
    else:
        properties_at = body_end + 2 + _I16.unpack_from(record, body_end)[0]
    properties = record[properties_at + 2 :]
    mark = f"{Property.POP_CHECK_POINT}\x01".encode()
    if not (properties.startswith(mark) or b"\x02" + mark in properties):
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += mark + receipt_handle.encode() + b"\x02"
    name = topic.encode()
    tail = bytes((len(name),)) + name + _I16.pack(len(properties)) + properties
    size = _I32.pack(body_end + len(tail))
    return size + MAGIC_V1 + record[8:body_end] + tail
