"""Plans by ranges of the log: every offset once, in its queue's order, each group in one range of the log."""

from itertools import pairwise
from pathlib import Path

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.reader import OfflineReader
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark.stores import KnownStore
from tests.support.stores import open_store, put

COUNT = 400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four queues, the last of which begins late and ends early."""
    with open_store(tmp_path / "store") as store:
        for number in range(COUNT):
            for queue_id in range(4 if COUNT // 3 < number < COUNT // 2 else 3):
                put(store, b"%d" % number * (number % 7), queue_id=queue_id)
            store.write()
    return tmp_path / "store"


def ranges(reader: OfflineReader) -> list[QueueRange]:
    bounds = reader.bounds(reader.queues("T"))
    return [
        QueueRange(queue, *pair, reader.bytes_of(QueueRange(queue, *pair))) for queue, pair in bounds.items()
    ]


def offsets(parts: list[tuple[QueueRange, ...]]) -> dict[MessageQueue, list[int]]:
    found: dict[MessageQueue, list[int]] = {}
    for group in parts:
        for part in group:
            found.setdefault(part.queue, []).extend(range(part.start, part.end))
    return found


@pytest.mark.parametrize("bytes_each", [1000, 5000, 20_000, 1 << 40, 1])
def test_every_offset_is_planned_once_and_in_order(root: Path, bytes_each: int) -> None:
    with StoreSource((f"s={root}",)).open() as reader:
        parts = ranges(reader)
        groups = reader.log_order_splits(parts, bytes_each=bytes_each)
        assert offsets(groups) == {part.queue: [*range(part.start, part.end)] for part in parts}
        assert all(len(part) for group in groups for part in group)
        assert all(len({part.queue for part in group}) == len(group) for group in groups)


def test_each_group_is_in_one_range_of_the_log(root: Path) -> None:
    def lost(part: QueueRange, why: str) -> None:
        raise AssertionError(f"{part}: {why}")

    with StoreSource((f"s={root}",)).open() as reader:
        parts = ranges(reader)
        total = sum(part.size for part in parts)
        groups = reader.log_order_splits(parts, bytes_each=total // 8)
        assert 8 <= len(groups) <= 9
        ends = []
        for group in groups:
            positions = [
                spans[n].physical_offset
                for part in group
                for spans in reader.read(part, MessageFilter(), lost, bytes_max=1 << 20)
                for n in range(len(spans))
            ]
            ends.append((min(positions), max(positions)))
            assert abs(sum(part.size for part in group) - total / 8) < total / 16
        assert ends == sorted(ends)
        assert all(before < after for (_, before), (after, _) in pairwise(ends))


def test_what_is_not_there_is_planned_too_so_that_it_is_reported(root: Path) -> None:
    queue = MessageQueue("T", "s", 0)
    with StoreSource((f"s={root}",)).open() as reader:
        for start, end in ((-5, COUNT + 50), (COUNT + 10, COUNT + 60), (-20, -10)):
            groups = reader.log_order_splits([QueueRange(queue, start, end, 60_000)], bytes_each=10_000)
            assert offsets(groups) == {queue: [*range(start, end)]}
        assert reader.log_order_splits([], bytes_each=5) == []
        assert reader.log_order_splits([QueueRange(queue, 5, 5)], bytes_each=5) == []
        sizeless = QueueRange(queue, 0, COUNT)
        assert reader.log_order_splits([sizeless], bytes_each=5) == [(sizeless,)]


def test_stores_are_planned_apart(root: Path, store: KnownStore) -> None:
    with StoreSource((f"s={root}", str(store.root))).open() as reader:
        queues = [*reader.queues("T"), *reader.queues("Orders")]
        parts = [QueueRange(queue, *pair, 10_000) for queue, pair in reader.bounds(queues).items()]
        groups = reader.log_order_splits(parts, bytes_each=20_000)
        assert offsets(groups) == {part.queue: [*range(part.start, part.end)] for part in parts}
        assert all(len({part.queue.broker_name for part in group}) == 1 for group in groups)
