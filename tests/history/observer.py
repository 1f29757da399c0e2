"""Observer: reads queues and offsets over a plain connection, and records them as events of the history.

It commits nothing and has a separate consumer group. One thread.
"""

import time
import zlib
from collections.abc import Iterator

from firearrow._native.store.log.record import decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.history.events import Event
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull

GROUP = "Observer"
OVERLAP = 64
EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
COMPRESSED = 1


class Observer:
    """`queues`: topic → number of queues."""

    def __init__(self, queues: dict[str, int]) -> None:
        self._queues = [(topic, number) for topic, count in queues.items() for number in range(count)]
        self._read: dict[tuple[str, int], int] = {}

    def read(self, connection: ClientSocket, whole: bool = False) -> Iterator[Event]:
        """All messages, or those since a little before the last read; then where each queue ends."""
        for topic, queue_id in self._queues:
            first = self._offset(connection, RequestCode.GET_MIN_OFFSET, topic, queue_id)
            start = 0 if whole else self._read.get((topic, queue_id), 0) - OVERLAP
            offset = max(first, start)
            while (answer := pull(connection, topic, offset, queue_id, consumerGroup=GROUP)).code == 0:
                yield from _stored(answer.body)
                offset = int(answer.ext["nextBeginOffset"])
            if answer.code not in EMPTY:
                raise AssertionError(f"pull of {topic} {queue_id} at {offset}: {answer.code} {answer.remark}")
            self._read[topic, queue_id] = offset
            yield {"event": "ends", "topic": topic, "queue": queue_id, "min": first, "max": offset}

    def offsets(self, connection: ClientSocket, groups: dict[str, str]) -> Iterator[Event]:
        """Of each group (→ topic) in each queue, if it has one."""
        for group, topic in groups.items():
            for each, queue_id in self._queues:
                if each == topic:
                    yield self._group_offset(connection, group, topic, queue_id)

    def _group_offset(self, connection: ClientSocket, group: str, topic: str, queue_id: int) -> Event:
        before = time.time_ns()
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "setZeroIfNotFound": "false",
        }
        answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        if answer.code not in (0, ResponseCode.QUERY_NOT_FOUND):
            raise AssertionError(f"offset of {group} in {topic} {queue_id}: {answer.code} {answer.remark}")
        offset = int(answer.ext["offset"]) if answer.code == 0 else -1
        return {
            "event": "offset",
            "group": group,
            "topic": topic,
            "queue": queue_id,
            "offset": offset,
            "before": before,
            "at": time.time_ns(),
        }

    def _offset(self, connection: ClientSocket, code: int, topic: str, queue_id: int) -> int:
        answer = connection.ask(code, {"topic": topic, "queueId": str(queue_id)})
        assert answer.code == 0, answer.remark
        return int(answer.ext["offset"])


def _stored(body: bytes) -> Iterator[Event]:
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        record = decode(body[at : at + size])
        text = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
        yield {
            "event": "stored",
            "topic": record.topic,
            "queue": record.queue_id,
            "offset": record.queue_offset,
            "id": text.split(b"|", 1)[0].decode("ascii", "replace"),
            "crc": zlib.crc32(text),
            "size": len(text),
        }
        at += size
