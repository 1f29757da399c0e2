"""Queue partitioner: selects the queue of each row of an Arrow batch, without a Python object for each row.

`queueId` takes precedence over `shardingKey`; rows with neither go to any queue. If several brokers have a
queue with that id, the column `brokerName` decides, so that a source queue goes to one queue. Rows of one
queue keep their order. Any thread.
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
"""Returns the writable queues of a topic, at least one."""


class QueueIdUse(Enum):
    """How the column queueId is used."""

    EXACT = "exact"
    """The queue with that id; InvalidOption if there is none."""
    MODULO = "modulo"
    """queueId modulo the number of queues: rows of one source queue stay in order."""
    ANY = "any"
    """It is ignored."""


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows of one topic for one queue, in order; `queue` None: for any queue."""

    topic: str
    queue: MessageQueue | None
    rows: Indexes


def partition_rows(
    batch: pa.RecordBatch, topic: str | None, queues: Queues, use: QueueIdUse = QueueIdUse.EXACT
) -> Iterator[RowRun]:
    """All rows. `topic` overrides the column. InvalidOption: a row without a topic, or a queue that does
    not exist."""
    for name, rows in topics_of(batch, topic):
        available = queues(name)
        selected = np.full(len(rows), -1, dtype=np.int64)
        if "shardingKey" in batch.schema.names:
            _by_sharding_key(batch.column("shardingKey"), rows, selected, len(available))
        if "queueId" in batch.schema.names and use is not QueueIdUse.ANY:
            _by_queue_id(batch, rows, selected, available, use)
        for index, group in groups(selected):
            yield RowRun(name, None if index < 0 else available[index], rows[group])


def topics_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Indexes]]:
    if topic is not None:
        yield topic, np.arange(batch.num_rows, dtype=np.int64)
        return
    column = batch.column("topic")
    if column.null_count:
        raise InvalidOption("column topic: a row has null; fill it, or give the option topic for all rows")
    yield from _values(column)


def groups(codes: Indexes) -> Iterator[tuple[int, Indexes]]:
    """Each distinct code with its indexes, ascending."""
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=sorted_codes[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield int(sorted_codes[start]), order[start:stop]


def _values(column: pa.Array) -> Iterator[tuple[str, Indexes]]:
    """Each distinct string with its indexes, ascending."""
    coded = column.dictionary_encode()
    names = coded.dictionary.to_pylist()
    for code, rows in groups(np.asarray(coded.indices).astype(np.int64)):
        yield names[code], rows


def _by_sharding_key(column: pa.Array, rows: Indexes, selected: Indexes, count: int) -> None:
    """As Java's client selects a queue by the hash of a String."""
    hashes = np.abs(np.asarray(texts(column).hashes()).astype(np.int64))[rows]
    valid = np.asarray(column.is_valid())[rows]
    selected[valid] = (hashes % count)[valid]


def _by_queue_id(
    batch: pa.RecordBatch,
    rows: Indexes,
    selected: Indexes,
    available: Sequence[MessageQueue],
    use: QueueIdUse,
) -> None:
    column = batch.column("queueId")
    ids = np.asarray(whole_numbers(column))[rows]
    valid = np.asarray(column.is_valid())[rows]
    if "brokerName" not in batch.schema.names:
        selected[valid] = _indexes(ids[valid], available, list(range(len(available))), use)
        return
    names = batch.column("brokerName").fill_null("").take(pa.array(rows))
    for name, of_broker in _values(names):
        with_id = of_broker[valid[of_broker]]
        selected[with_id] = _indexes(ids[with_id], available, _at_broker(available, name), use)


def _at_broker(available: Sequence[MessageQueue], name: str) -> list[int]:
    """Indexes of the queues of that broker; if there is none, of a broker that is always the same for the
    name."""
    names = sorted({queue.broker_name for queue in available})
    broker = name if name in names else names[crc32(name.encode()) % len(names)]
    return [index for index, queue in enumerate(available) if queue.broker_name == broker]


def _indexes(
    ids: Indexes, available: Sequence[MessageQueue], preferred: Sequence[int], use: QueueIdUse
) -> Indexes:
    """Indexes of the queues with these ids; `preferred` ones come before others with the same id."""
    if use is QueueIdUse.MODULO:
        return np.asarray(preferred, dtype=np.int64)[ids % len(preferred)]
    table = np.full(QUEUE_ID_MAX, -1, dtype=np.int64)
    for index in (*reversed(range(len(available))), *reversed(preferred)):
        table[available[index].queue_id] = index
    within = (ids >= 0) & (ids < QUEUE_ID_MAX)
    found = np.where(within, table[np.where(within, ids, 0)], -1)
    if (found < 0).any():
        known = ", ".join(map(str, sorted({queue.queue_id for queue in available})[:16]))
        raise InvalidOption(
            f"column queueId: {available[0].topic} has no writable queue {ids[found < 0][0]}, only {known}; "
            "set the option queues to modulo or any, or drop the column"
        )
    return found
