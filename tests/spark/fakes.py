"""A log in memory with the interface of a Source: queues of records that a test adds, expires and removes."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, RecordId
from tests.spark.record_bytes import STORED_MS, properties_bytes, record_bytes, spans_of

BROKER = "broker-a"


def queue_of(queue_id: int = 0, topic: str = "Orders", broker: str = BROKER) -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


@dataclass
class FakeQueue:
    first: int = 0
    records: list[bytes] = field(default_factory=list)
    stored_ms: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


@dataclass
class FakeLog:
    """A Source that is its own Reader."""

    queues_there: dict[MessageQueue, FakeQueue] = field(default_factory=dict)
    asked_bounds: int = 0
    """The number of calls of `bounds`."""
    opened: int = 0
    torn: list[tuple[QueueRange, str]] = field(default_factory=list)
    """The result of `tail_losses`."""
    strict: bool = False
    """Whether bounds of a missing queue raise, as at brokers."""

    def add(
        self,
        queue: MessageQueue,
        count: int = 1,
        *,
        body: bytes = b"",
        tags: str = "",
        stored_ms: int = STORED_MS,
    ) -> None:
        there = self.queues_there.setdefault(queue, FakeQueue())
        for _ in range(count):
            properties = properties_bytes({"TAGS": tags} if tags else {})
            there.records.append(
                record_bytes(
                    body or str(there.end).encode(),
                    properties,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=there.end,
                    stored_ms=stored_ms,
                )
            )
            there.stored_ms.append(stored_ms)

    def expire(self, queue: MessageQueue, count: int) -> None:
        there = self.queues_there[queue]
        del there.records[:count], there.stored_ms[:count]
        there.first += count

    def open(self) -> Self:
        self.opened += 1
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.opened -= 1

    def __str__(self) -> str:
        return "memory"

    def topics(self) -> list[str]:
        return list({queue.topic: None for queue in self.queues_there})

    def queues(self, topic: str) -> list[MessageQueue]:
        found = sorted(queue for queue in self.queues_there if queue.topic == topic)
        if not found:
            raise TopicNotFound(f"there is no topic {topic}")
        return found

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        self.asked_bounds += 1
        if self.strict and not all(queue in self.queues_there for queue in queues):
            raise TopicNotFound("one of them is not there")
        there = ((queue, self.queues_there[queue]) for queue in queues if queue in self.queues_there)
        return {queue: (each.first, each.end) for queue, each in there}

    def tail_losses(self, queues: Sequence[MessageQueue]) -> list[tuple[QueueRange, str]]:
        return [(part, why) for part, why in self.torn if part.queue in queues]

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        there = self.queues_there[queue]
        return next((there.first + i for i, stored in enumerate(there.stored_ms) if stored >= ms), there.end)

    def bytes_of(self, part: QueueRange) -> int:
        there = self.queues_there[part.queue]
        return sum(map(len, there.records[part.start - there.first : part.end - there.first]))

    def read(
        self, part: QueueRange, message_filter: MessageFilter, lost: OnDataLoss, *, bytes_max: int
    ) -> Iterator[Spans]:
        there = self.queues_there[part.queue]
        if part.start < there.first:
            lost(replace(part, end=there.first), "expired")
        chunk: list[bytes] = []
        for record in there.records[max(0, part.start - there.first) : part.end - there.first]:
            if not message_filter.tags or spans_of(record).properties(0).get("TAGS") in message_filter.tags:
                chunk.append(record)
            if sum(map(len, chunk)) >= bytes_max:
                yield spans_of(*chunk)
                chunk = []
        yield spans_of(*chunk)

    def groups(self) -> dict[str, dict[MessageQueue, int]]:
        return {}


@dataclass
class IdentifyingLog(FakeLog):
    """A FakeLog that also returns the record at an offset. Each message is stored 1 ms after the previous one."""

    end: int = 0
    """Of the log, physical."""
    now_ms: int = STORED_MS
    ids: dict[MessageQueue, dict[int, RecordId]] = field(default_factory=dict)
    taken_away: dict[MessageQueue, FakeQueue] = field(default_factory=dict)
    """Not listed any more, but with their bounds."""

    def add(
        self,
        queue: MessageQueue,
        count: int = 1,
        *,
        body: bytes = b"",
        tags: str = "",
        stored_ms: int | None = None,
    ) -> None:
        for _ in range(count):
            self.now_ms = self.now_ms + 1 if stored_ms is None else stored_ms
            super().add(queue, body=body, tags=tags, stored_ms=self.now_ms)
            number = self.queues_there[queue].end - 1
            self.ids.setdefault(queue, {})[number] = RecordId(number, self.end, self.now_ms)
            self.end += 100

    def delete(self, *queues: MessageQueue) -> None:
        for queue in queues:
            del self.queues_there[queue]
            self.ids.pop(queue, None)

    def backup(self) -> "IdentifyingLog":
        return copy.deepcopy(self)

    def restore(self, backup: "IdentifyingLog") -> None:
        """Time goes on."""
        kept = backup.backup()
        self.queues_there, self.ids, self.end = kept.queues_there, kept.ids, kept.end
        self.now_ms += 1000

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        away = {queue: self.taken_away[queue] for queue in queues if queue in self.taken_away}
        return super().bounds(queues) | {queue: (each.first, each.end) for queue, each in away.items()}

    def record_ids(self, places: Sequence[tuple[MessageQueue, int]]) -> list[RecordId | None]:
        there = self.queues_there
        return [
            self.ids[queue][number]
            if queue in there and there[queue].first <= number < there[queue].end
            else None
            for queue, number in places
        ]
