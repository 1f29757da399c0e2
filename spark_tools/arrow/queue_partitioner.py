"""Placing: which queue each row of an Arrow batch goes to, without an object a row.

`queueId` comes before `shardingKey`; rows with neither go anywhere. If several brokers have a queue of the id, the
column `brokerName` says which: a source queue goes to one queue. Rows of one queue keep their order. Any thread.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.message_columns import texts, whole_numbers
from firearrow.spark_tools.base.errors import InvalidOption

QUEUE_ID_MAX = 1 << 16
Indexes = npt.NDArray[np.int64]
Queues = Callable[[str], Sequence[MessageQueue]]
"""Those of a topic that can be written to, at least one."""


class QueueIdUse(Enum):
    """What becomes of the column queueId."""

    EXACT = "exact"
    """The queue of that id; InvalidOption if there is none."""
    MODULO = "modulo"
    """The remainder by the number of queues: rows of one source queue stay in order."""
    ANY = "any"
    """It is not looked at."""


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows of one topic that belong to one queue, or with `queue` None to any of them; in their order."""

    topic: str
    queue: MessageQueue | None
    rows: Indexes


def partition_rows(
    batch: pa.RecordBatch, topic: str | None, queues: Queues, message_filter: QueueIdUse = QueueIdUse.EXACT
) -> Iterator[RowRun]:
    """All rows. `topic` overrides the column. InvalidOption: a row without a topic, a queue that is not there."""
    for name, rows in topics_of(batch, topic):
        there = queues(name)
        place = np.full(len(rows), -1, dtype=np.int64)
        if "shardingKey" in batch.schema.names:
            _by_sharding_key(batch.column("shardingKey"), rows, place, len(there))
        if "queueId" in batch.schema.names and message_filter is not QueueIdUse.ANY:
            _by_queue_id(batch, rows, place, there, message_filter)
        for index, part in groups(place):
            yield RowRun(name, None if index < 0 else there[index], rows[part])


def topics_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Indexes]]:
    if topic is not None:
        yield topic, np.arange(batch.num_rows, dtype=np.int64)
        return
    column = batch.column("topic")
    if column.null_count:
        raise InvalidOption("column topic: null in a row; fill it, or give the option topic for all rows")
    yield from _values(column)


def groups(codes: Indexes) -> Iterator[tuple[int, Indexes]]:
    """Each code that is there, and where, ascending."""
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=sorted_codes[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield int(sorted_codes[start]), order[start:stop]


def _values(column: pa.Array) -> Iterator[tuple[str, Indexes]]:
    """Each text that is there, and where, ascending."""
    coded = column.dictionary_encode()
    names = coded.dictionary.to_pylist()
    for code, rows in groups(np.asarray(coded.indices).astype(np.int64)):
        yield names[code], rows


def _by_sharding_key(column: pa.Array, rows: Indexes, place: Indexes, count: int) -> None:
    """As Java's client chooses by the hash of a String."""
    hashes = np.abs(np.asarray(texts(column).hashes()).astype(np.int64))[rows]
    given = np.asarray(column.is_valid())[rows]
    place[given] = (hashes % count)[given]


def _by_queue_id(
    batch: pa.RecordBatch,
    rows: Indexes,
    place: Indexes,
    there: Sequence[MessageQueue],
    message_filter: QueueIdUse,
) -> None:
    column = batch.column("queueId")
    ids = np.asarray(whole_numbers(column))[rows]
    given = np.asarray(column.is_valid())[rows]
    if "brokerName" not in batch.schema.names:
        place[given] = _indexes(ids[given], there, list(range(len(there))), message_filter)
        return
    names = batch.column("brokerName").fill_null("").take(pa.array(rows))
    for name, all_of_it in _values(names):
        part = all_of_it[given[all_of_it]]
        place[part] = _indexes(ids[part], there, _at_broker(there, name), message_filter)


def _at_broker(there: Sequence[MessageQueue], name: str) -> list[int]:
    """Queues of the broker of that name, or else of one that is always the same for it; sorted."""
    names = sorted({queue.broker_name for queue in there})
    chosen = name if name in names else names[crc32(name.encode()) % len(names)]
    return [index for index, queue in enumerate(there) if queue.broker_name == chosen]


def _indexes(
    ids: Indexes, there: Sequence[MessageQueue], first: Sequence[int], message_filter: QueueIdUse
) -> Indexes:
    """Of the queues with these ids; `first` says which go before others with the same id."""
    if message_filter is QueueIdUse.MODULO:
        return np.asarray(first, dtype=np.int64)[ids % len(first)]
    table = np.full(QUEUE_ID_MAX, -1, dtype=np.int64)
    for index in (*reversed(range(len(there))), *reversed(first)):
        table[there[index].queue_id] = index
    within = (ids >= 0) & (ids < QUEUE_ID_MAX)
    found = np.where(within, table[np.where(within, ids, 0)], -1)
    if (found < 0).any():
        known = ", ".join(map(str, sorted({queue.queue_id for queue in there})[:16]))
        raise InvalidOption(
            f"column queueId: {there[0].topic} has no queue {ids[found < 0][0]} that can be written to, only {known}; "
            "set the option queues to modulo or any, or drop the column"
        )
    return found
