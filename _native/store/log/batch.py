"""Splits the body of a SEND_BATCH_MESSAGE into its items; checks every length before use."""

import struct

from firearrow._native.store.log.results import PutRefused, PutStatus

HEAD = struct.Struct(">iiiii")
ITEM_BYTES_MIN = HEAD.size + 2
PROPERTIES_BYTES_MAX = 32767


def items_of(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of each item. PutRefused: empty, truncated, or the lengths do not add up."""
    items = []
    at, end = 0, len(body)
    while at < end:
        if end - at < ITEM_BYTES_MIN:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "batch")
        size, _, _, flag, body_bytes = HEAD.unpack_from(body, at)
        if not ITEM_BYTES_MIN <= size <= end - at or not 0 <= body_bytes <= size - ITEM_BYTES_MIN:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "batch")
        properties_at = at + HEAD.size + body_bytes + 2
        properties_bytes = int.from_bytes(body[properties_at - 2 : properties_at], signed=True)
        if properties_bytes < 0 or properties_at + properties_bytes != at + size:
            raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "batch")
        items.append((flag, body[at + HEAD.size : properties_at - 2], body[properties_at : at + size]))
        at += size
    if not items:
        raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "batch")
    return items
