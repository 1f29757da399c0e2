"""OfflineReader: reads one or several stores as one source. Writes nothing, takes no lock. One thread."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from firearrow._native.columnar.record_spans import Spans
from firearrow._native.offline.log_reader import LogReader, Torn, boundary
from firearrow._native.offline.mapped_files import MappedFile, MappedFiles
from firearrow._native.offline.segment_files import SegmentFile, missing
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, RecordId
from firearrow.spark_tools.offline.index_plan import by_index
from firearrow.spark_tools.offline.log_order_plan import log_order_splits
from firearrow.spark_tools.offline.missing_entries import check_entries
from firearrow.spark_tools.offline.queue_reader import StoredRangeReader
from firearrow.spark_tools.offline.store import OfflineStore
from firearrow.spark_tools.offline.tail_check import check_tail


class OfflineReader:
    """A `SourceReader` of stores given as `(name, folder)`; also reads their logs."""

    def __init__(self, folders: Iterable[tuple[str, str]]) -> None:
        self._mappings = MappedFiles()
        self._stores = {name: OfflineStore(name, folder, self._mappings) for name, folder in folders}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._mappings.close()

    @property
    def brokers(self) -> list[str]:
        """Names of the stores."""
        return list(self._stores)

    # ---- queues ----

    def topics(self) -> list[str]:
        return sorted({topic for store in self._stores.values() for topic in store.topics()})

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of all stores that have the topic. TopicNotFound, StoreUnreadable."""
        found: list[MessageQueue] = []
        absent: TopicNotFound | None = None
        for store in self._stores.values():
            try:
                found += store.queues(topic)
            except TopicNotFound as error:
                absent = error
        if not found and absent is not None:
            raise absent
        return sorted(found)

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        """The readable range of each queue, up to its last whole record; the queues are read one after
        another."""
        for name in {queue.broker_name for queue in queues}:
            self._store(name).log.refresh()
        return {queue: self._bounds(queue) for queue in queues}

    def _bounds(self, queue: MessageQueue) -> tuple[int, int]:
        with self._store(queue.broker_name).queue(queue) as stored:
            return stored.bounds()

    def tail_losses(self, queues: Sequence[MessageQueue]) -> list[tuple[QueueRange, str]]:
        return [
            each
            for name, store in self._stores.items()
            for each in check_tail(store, [queue for queue in queues if queue.broker_name == name])
        ]

    def missing_entries(self, parts: Sequence[QueueRange]) -> list[tuple[QueueRange, str]]:
        """Messages at the edges of these ranges that are in the log only, see missing_entries.py."""
        return [
            each
            for name, store in self._stores.items()
            for each in check_entries(store, [part for part in parts if part.queue.broker_name == name])
        ]

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        with self._store(queue.broker_name).queue(queue) as stored:
            return stored.offset_at(ms)

    def record_ids(self, places: Sequence[tuple[MessageQueue, int]]) -> list[RecordId | None]:
        """The records at these queue offsets; None: there is no whole record."""
        for name in {queue.broker_name for queue, _ in places}:
            self._store(name).log.refresh()
        return [self._record_id(*place) for place in places]

    def _record_id(self, queue: MessageQueue, queue_offset: int) -> RecordId | None:
        with self._store(queue.broker_name).queue(queue) as stored:
            return stored.record_id(queue_offset)

    def bytes_of(self, part: QueueRange) -> int:
        with self._store(part.queue.broker_name).queue(part.queue) as stored:
            return stored.bytes_of(part.start, part.end)

    def read(
        self, part: QueueRange, message_filter: MessageFilter, on_data_loss: OnDataLoss, *, bytes_max: int
    ) -> Iterator[Spans]:
        with self._store(part.queue.broker_name).queue(part.queue) as stored:
            yield from StoredRangeReader(stored, message_filter, on_data_loss, bytes_max).spans(
                part.start, part.end
            )

    def log_order_splits(
        self, parts: Sequence[QueueRange], *, bytes_each: int
    ) -> list[tuple[QueueRange, ...]]:
        """The same offsets, grouped so that the records of a group are in one chunk of a log; see
        log_order_plan.py."""
        found: list[tuple[QueueRange, ...]] = []
        for name, store in self._stores.items():
            found += log_order_splits(
                store, [part for part in parts if part.queue.broker_name == name], bytes_each
            )
        return found

    def by_index(self, parts: Sequence[QueueRange], message_filter: MessageFilter) -> list[QueueRange]:
        """The parts of the ranges that may hold the filter's keys or unique ids, see index_plan.py; sorted,
        no sizes."""
        found: list[QueueRange] = []
        for name, store in self._stores.items():
            found += by_index(
                store, [part for part in parts if part.queue.broker_name == name], message_filter
            )
        return sorted(found, key=lambda part: (part.queue, part.start))

    def groups(self) -> dict[str, dict[MessageQueue, int]]:
        """The committed offsets as the brokers last saved them: some seconds old while a broker runs."""
        found: dict[str, dict[MessageQueue, int]] = {}
        for store in self._stores.values():
            for group, queue, queue_offset in store.groups():
                found.setdefault(group, {})[queue] = queue_offset
        return found

    # ---- logs ----

    def root(self, broker: str) -> str:
        """The folder of a store."""
        return self._store(broker).root

    def segments(self, broker: str) -> list[SegmentFile]:
        """The files of the log in order, listed now."""
        log = self._store(broker).log
        log.refresh()
        return list(log.segments)

    def missing(self, broker: str) -> list[tuple[int, int]]:
        """Physical offsets [start, end) within the log that are in no file."""
        return missing(self.segments(broker))

    def window(self, segment: SegmentFile) -> MappedFile | None:
        """The file mapped read-only; None if it no longer exists. Valid as long as it is referenced."""
        return self._mappings.get(segment)

    def log_end(self, broker: str) -> int:
        """The physical end of the last whole record."""
        return self._store(broker).log_end()

    def boundary(self, broker: str, physical: int) -> int | None:
        """The offset of the first record at or after `physical`; None: there is none."""
        return boundary(self._store(broker).log, physical)

    def read_log(
        self,
        broker: str,
        start: int,
        end: int | None,
        torn: Torn,
        *,
        check_crc: bool = False,
        bytes_max: int = 8 << 20,
    ) -> Iterator[Spans]:
        """Records that begin in [start, end) of the log, see LogReader."""
        yield from LogReader(self._store(broker).log, start, end, torn, check_crc=check_crc).spans(bytes_max)

    def _store(self, broker: str) -> OfflineStore:
        store = self._stores.get(broker)
        if store is None:
            raise InvalidOption(
                f"path: no store is named {broker!r}; the stores are {', '.join(self._stores)}"
            )
        return store
