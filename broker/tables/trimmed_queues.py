"""TrimmedQueues: where queues were trimmed, and `trimmedQueues.json` (ours).

A trim is kept as a physical offset: readers see no record of the queue below it. Unlike a queue offset, it
states nothing about a topic that was deleted and created again, also by Apache's broker, because new records are
above it. It is forgotten once the log starts there. Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable

from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.offsets import QUEUE_ID_MAX

QUEUES_MAX = 200_000
Queue = tuple[str, int]


class TrimsFull(Exception):
    """The limit of trimmed queues is reached."""


class TrimmedQueues:
    def __init__(self, changed: Callable[[], None] = lambda: None, *, queues_max: int = QUEUES_MAX) -> None:
        self._changed = changed
        self._queues_max = queues_max
        self._table: dict[Queue, int] = {}

    def __len__(self) -> int:
        return len(self._table)

    def items(self) -> list[tuple[Queue, int]]:
        """(Topic, queue) → physical offset of the first record that is left."""
        return list(self._table.items())

    def ensure_capacity(self, count: int) -> None:
        """TrimsFull: `count` more queues do not fit."""
        if len(self._table) + count > self._queues_max:
            raise TrimsFull(f"{len(self._table)} queues are trimmed, at most {self._queues_max} can be")

    def note(self, topic: str, queue_id: int, physical_offset: int) -> None:
        self._table[topic, queue_id] = physical_offset
        self._changed()

    def forget_below(self, physical_offset: int) -> list[Queue]:
        """Forget the trims of which the log has no record any more: it starts at `physical_offset`."""
        gone = [queue for queue, at in self._table.items() if at <= physical_offset]
        for queue in gone:
            del self._table[queue]
        if gone:
            self._changed()
        return gone

    def bound(self, log_end: int) -> bool:
        """Reset trims past the end of the log, which was damaged: they would hide new messages. True if there
        was one."""
        ahead = [queue for queue, at in self._table.items() if at > log_end]
        if ahead:
            self._table |= dict.fromkeys(ahead, log_end)
            self._changed()
        return bool(ahead)

    # --- the file ---

    def to_json(self) -> bytes:
        queues = [
            {"topic": topic, "queueId": queue_id, "physicalOffset": at}
            for (topic, queue_id), at in self._table.copy().items()
        ]
        return pretty({"queues": queues})

    def load(self, text: bytes) -> None:
        """Replace the table by the file's queues. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "trimmedQueues.json")
        table = dict(_queue(value) for value in json_fields.items(of.get("queues"), "queues"))
        self._table = dict(list(table.items())[: self._queues_max])


def _queue(value: object) -> tuple[Queue, int]:
    of = json_fields.members(value, "queues")
    queue_id = json_fields.number(of, "queueId", high=QUEUE_ID_MAX)
    at = json_fields.number(of, "physicalOffset", high=json_fields.LONG_MAX)
    return (json_fields.text(of, "topic"), queue_id), at
