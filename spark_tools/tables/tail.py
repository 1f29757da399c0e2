"""What is stored from now on, as an async iterator of Arrow batches, with the rules of Spark's streams: no message
twice, none left out, and DataLoss where that cannot be.

Reading blocks, so it has a thread of its own, which also owns the reader. The iterator belongs to one task.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from firearrow.spark_tools.base.source import OnDataLoss
from firearrow.spark_tools.plan.data_loss import FailFast
from firearrow.spark_tools.plan.options import STREAM
from firearrow.spark_tools.plan.queue_records import StreamOffsets, report_changed
from firearrow.spark_tools.plan.stream_offsets import StreamCursor
from firearrow.spark_tools.tables.dataset import RocketMQDataset, Where, batches_of, dataset_of

POLL_S = 0.2
T = TypeVar("T")


async def tail(
    source: Where,
    topic: str | Sequence[str] | None = None,
    *,
    poll_s: float = POLL_S,
    **options: Any,  # noqa: ANN401 (those of `dataset`)
) -> AsyncGenerator[pa.RecordBatch]:
    """Batches of new messages, until the task is cancelled or the generator closed. `poll_s`: how often it looks.
    Arguments as for `dataset`, without `until`; `since` or `startingOffsets` begin earlier. TopicNotFound, DataLoss."""
    found = dataset_of(source, topic, STREAM, options)
    with ThreadPoolExecutor(1, "firearrow-tail") as thread:

        async def run(function: Callable[[], T]) -> T:
            return await asyncio.get_running_loop().run_in_executor(thread, function)

        follower = LogFollower(found)
        try:
            while True:
                batches = follower.new_batches()
                got = False
                while (batch := await run(lambda: next(batches, None))) is not None:  # noqa: B023 (awaited at once)
                    got = True
                    yield batch
                if not got:
                    await asyncio.sleep(poll_s)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await run(follower.close)


def batches_between(
    found: RocketMQDataset, cursor: StreamCursor, start: StreamOffsets, end: StreamOffsets, lost: OnDataLoss
) -> Iterator[pa.RecordBatch]:
    """The messages from `start` to `end`, which `cursor` has planned. `lost` gets what is missing, also if the topic is
    recreated meanwhile. DataLoss."""
    for split in cursor.parts(start, end):
        with found.source.open() as reader:
            message_filter = found.options.message_filter()
            yield from batches_of(reader, split, message_filter, found.names, found.options, lost)
            report_changed(reader, split, end, lost)


class LogFollower:
    """Where a tail is. One thread."""

    def __init__(self, found: RocketMQDataset) -> None:
        self._dataset = found
        self._cursor = StreamCursor(found.source, found.options)
        self._at: StreamOffsets | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def new_batches(self) -> Iterator[pa.RecordBatch]:
        """What was stored since the last call, whose batches were all taken."""
        self._batches = self._read()
        return self._batches

    def _read(self) -> Generator[pa.RecordBatch]:
        start = self._cursor.first() if self._at is None else self._at
        end = self._cursor.end(start, limited=False)
        lost = FailFast(self._dataset.options.fail_on_loss)
        yield from batches_between(self._dataset, self._cursor, start, end, lost)
        self._at = end

    def close(self) -> None:
        """Also a read that was not taken to its end, in the thread that owns its reader."""
        if isinstance(self._batches, Generator):
            self._batches.close()
        self._cursor.close()
