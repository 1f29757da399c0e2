"""DeletedTopics: where the queues of deleted topics ended, and `deletedTopics.json` (ours).

A topic that is created again under the same name starts at offset 0, but its consumers go on with the offsets
of the deleted queues. Such an offset is recognised by where the deleted queue ended and where the group
pulled it; the group is sent to the first message. This ends with the group's first pull of the new queue.

A start that walks the log finds the deleted queues' records again; `is_deleted` identifies them. Loop
thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.offsets import ConsumerOffsets, queue_id_fault

TOPICS_MAX = 10_000
OFFSETS_MAX = 200_000
"""Ends of queues and pull offsets of groups, of all topics."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """`ends`: queue → its end when it was deleted; `pulled`: group → queue → offset of its last pull; `log_end`
    and `ms`: the end of the log and the time then."""

    ends: dict[int, int] = field(default_factory=dict)
    pulled: dict[str, dict[int, int]] = field(default_factory=dict)
    log_end: int = 0
    ms: int = 0

    def __len__(self) -> int:
        """The number of offsets."""
        return len(self.ends) + sum(map(len, self.pulled.values()))


class DeletedTopics:
    """Drops the topics that were deleted first if there are too many."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
        *,
        topics_max: int = TOPICS_MAX,
        offsets_max: int = OFFSETS_MAX,
    ) -> None:
        self._offsets = offsets
        self._clients = clients
        self._clock = clock
        self._changed = changed
        self._topics_max = topics_max
        self._offsets_max = offsets_max
        self._table: dict[str, DeletedTopic] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, topic: object) -> bool:
        return topic in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._table))

    def note(self, topic: str, ends: Mapping[int, int], log_end: int) -> None:
        """The topic is about to be deleted, and its groups' offsets with it. `ends`: queue → end; `log_end`:
        the end of the log."""
        ends = {queue_id: end for queue_id, end in ends.items() if end > 0}
        if not ends:
            return
        before = self._drop(topic) or DeletedTopic()
        pulled = before.pulled | {
            group: dict(of) for group, of in self._offsets.pulls_by_group(topic).items()
        }
        for queue_id, end in before.ends.items():
            ends[queue_id] = max(end, ends.get(queue_id, 0))
        deleted = DeletedTopic(ends, pulled, log_end, self._clock.now_ms())
        self._add(topic, deleted if len(deleted) <= self._offsets_max else replace(deleted, pulled={}))
        self._changed()

    def is_old(self, group: str, topic: str, queue_id: int, queue_offset: int, low: int, high: int) -> bool:
        """Whether a pull at this offset is of the deleted queue. `low` and `high` are the new one's ends.

        Past the end it is if the deleted queue had the offset; inside, if the group pulled the deleted one
        exactly there. Each client of a broadcasting group has its own offset, so that one of them has pulled
        the new queue means nothing for the others.
        """
        deleted = self._table.get(topic)
        if deleted is None or queue_offset <= low:
            return False
        has_pulled = self._offsets.pulled(group, topic, queue_id) >= 0
        if queue_offset > high and (not has_pulled or group in self._clients.broadcasting):
            return queue_offset <= deleted.ends.get(queue_id, 0)
        return not has_pulled and deleted.pulled.get(group, {}).get(queue_id) == queue_offset

    def is_old_commit(self, group: str, topic: str, queue_id: int, queue_offset: int, peer: Peer) -> bool:
        """Whether a member of the group commits an offset of the deleted queue: the group has not pulled the
        new one yet."""
        deleted = self._table.get(topic)
        if deleted is None or not 0 < queue_offset <= deleted.ends.get(queue_id, 0):
            return False
        online = self._clients.consumer_group(group)
        is_member = online is not None and peer in online.members
        return is_member and self._offsets.pulled(group, topic, queue_id) < 0

    def is_deleted(self, topic: str, physical_offset: int, store_ms: int) -> bool:
        """Whether a record of the topic was stored before the deletion. Both have to be: after a power cut
        the log may be shorter than it was, and a clock may have been set back."""
        deleted = self._table.get(topic)
        return deleted is not None and physical_offset < deleted.log_end and 0 <= store_ms <= deleted.ms

    def bound(self, log_end: int) -> None:
        """The log has lost what came after `log_end`: what will be stored there is not of deleted topics, whatever the
        clock reads, and a master that was promoted there may have stored it before the deletion."""
        ahead = {
            topic: replace(of, log_end=log_end) for topic, of in self._table.items() if of.log_end > log_end
        }
        if ahead:
            self._table |= ahead
            self._changed()

    # --- the file ---

    def to_json(self) -> bytes:
        topics = [
            {
                "topic": topic,
                "ends": _texts(of.ends),
                "logEnd": of.log_end,
                "pulled": {group: _texts(queues) for group, queues in of.pulled.items()},
                "timestamp": of.ms,
            }
            for topic, of in self._table.copy().items()
        ]
        return pretty({"topics": topics})

    def load(self, text: bytes) -> None:
        """Replace the table by the file's topics. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "deletedTopics.json")
        table = dict(_topic(value) for value in json_fields.items(of.get("topics"), "topics"))
        self._table, self._count = {}, 0
        for topic, deleted in table.items():
            self._add(topic, deleted)

    def _add(self, topic: str, deleted: DeletedTopic) -> None:
        self._table[topic] = deleted
        self._count += len(deleted)
        while len(self._table) > self._topics_max or self._count > self._offsets_max:
            self._drop(next(iter(self._table)))

    def _drop(self, topic: str) -> DeletedTopic | None:
        gone = self._table.pop(topic, None)
        self._count -= 0 if gone is None else len(gone)
        return gone


def _texts(offsets: dict[int, int]) -> dict[str, int]:
    """With keys that strict JSON can have."""
    return {str(queue_id): offset for queue_id, offset in offsets.items()}


def _topic(value: object) -> tuple[str, DeletedTopic]:
    of = json_fields.members(value, "topics")
    pulled = json_fields.members_or_none(of.get("pulled"), "pulled")
    return json_fields.text(of, "topic"), DeletedTopic(
        _offsets(of.get("ends"), "ends"),
        {str(group): _offsets(queues, "pulled") for group, queues in pulled.items()},
        json_fields.number(of, "logEnd", 0, high=json_fields.LONG_MAX),
        json_fields.number(of, "timestamp", 0, high=json_fields.LONG_MAX),
    )


def _offsets(value: object, what: str) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for key, offset in json_fields.members_or_none(value, what).items():
        queue_id = json_fields.whole(key, "queueId")
        fault = queue_id_fault(queue_id)
        if fault is not None:
            raise ValueError(fault)
        offsets[queue_id] = json_fields.whole(offset, what)
    return offsets
