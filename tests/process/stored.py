"""Whole messages of a queue, as a consumer sees them."""

import time

from firearrow._native.store.record import Record, decode
from firearrow._native.wire.codes import ResponseCode
from tests.process.connection import Connection
from tests.process.requests import pull


def whole(connection: Connection, topic: str, queue_id: int = 0) -> list[Record]:
    """All messages of a queue."""
    found: list[Record] = []
    while (answer := pull(connection, topic, len(found), queue_id)).code == 0:
        at = 0
        while at < len(answer.body):
            size = int.from_bytes(answer.body[at : at + 4], "big")
            found.append(decode(answer.body[at : at + size]))
            at += size
    assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED), answer.remark
    return found


def wait_for(connection: Connection, topic: str, count: int, within_s: float = 20) -> list[Record]:
    """Those of queue 0 when it has so many."""
    deadline = time.monotonic() + within_s
    while len(found := whole(connection, topic)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        time.sleep(0.02)
    return found
