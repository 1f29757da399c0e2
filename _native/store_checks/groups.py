"""Lag of consumer groups, from the store's `config` folder."""

from collections.abc import Mapping
from dataclasses import dataclass

from firearrow._native.offline.config_tables import GroupOffsets, group_offsets
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store_checks.findings import Extent, Findings, Kind, StoreFinding
from firearrow._native.store_checks.queues import QueueName, QueueResult


@dataclass(frozen=True, slots=True)
class GroupLag:
    """`offset`: the next one to consume; `lag`: messages from there to `end`, or from `first` if `offset`
    is deleted."""

    group: str
    topic: str
    queue_id: int
    offset: int
    first: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - max(self.offset, self.first))

    @property
    def gone(self) -> int:
        """Messages that were deleted before they were consumed."""
        return max(0, self.first - self.offset)


def read_offsets(store: StoreFolder, findings: Findings) -> GroupOffsets:
    """Offsets that cannot be read are a finding and count as none."""
    try:
        return group_offsets(store.root)
    except StoreUnreadable as error:
        findings.add(Kind.UNREADABLE.finding(Extent(store.name, store.path("config"), 0), str(error)))
        return {}


def lags(
    store: StoreFolder, offsets: GroupOffsets, queues: Mapping[QueueName, QueueResult], findings: Findings
) -> list[GroupLag]:
    """The lag in each queue of the store; an offset past the end of a queue is a finding."""
    found = []
    for (group, topic), by_queue in sorted(offsets.items()):
        for queue_id, queue_offset in sorted(by_queue.items()):
            queue = queues.get((topic, queue_id))
            if queue is None:
                continue
            found.append(GroupLag(group, topic, queue_id, queue_offset, queue.first, queue.end))
            if queue_offset > queue.end:
                findings.add(_beyond(store, found[-1]))
    return found


def _beyond(store: StoreFolder, lag: GroupLag) -> StoreFinding:
    text = f"group {lag.group} is at {lag.offset} of {lag.topic}:{lag.queue_id}, which ends at {lag.end}"
    path = store.path("config", "consumerOffset.json")
    where = Extent(store.name, path, 0, topic=lag.topic, queue_id=lag.queue_id, queue_offset=lag.offset)
    return Kind.OFFSET_BEYOND.finding(where, text)
