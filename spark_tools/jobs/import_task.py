"""Sends the files of one chain to a cluster, in the worker: Arrow → batches → socket.

A mark advances only past rows that the target has acknowledged, so rows are sent at least once. One thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firearrow.spark_tools.arrow.batch_sender import BatchSender, SinkSettings, unique_ids
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.parquet_input import FileRange, batches
from firearrow.spark_tools.jobs.rate_limit import UNLIMITED, RateLimits, TokenBucket
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender

CHECKPOINT_BYTES = 32 << 20
"""Rows that are sent before all of them are awaited and marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """Picklable; called in the worker with the pieces of one chain. `renamed`: the target's topic of a row's
    topic."""

    pieces: Mapping[str, FileRange]
    target: Cluster
    sink_settings: SinkSettings
    renamed: Callable[[str], str]
    job: str
    rates: RateLimits = UNLIMITED
    timeout_s: float = 60

    def __call__(self, slices: Sequence[Slice], marks: ProgressFiles) -> None:
        buckets = TokenBucket(self.rates.messages), TokenBucket(self.rates.bytes)
        with Sender(self.target, timeout_s=self.timeout_s) as sender:
            for file_range in slices:
                mark = marks.read(file_range)
                if mark.next < file_range.part.end:
                    FileSender(
                        self, self.pieces[file_range.part.queue.topic], mark, marks, sender, buckets
                    ).send()


class FileSender:
    """One piece on its way."""

    def __init__(
        self,
        of: ImportTask,
        file_range: FileRange,
        mark: SliceProgress,
        marks: ProgressFiles,
        sender: Sender,
        buckets: tuple[TokenBucket, TokenBucket],
    ) -> None:
        self._of, self._piece, self._mark, self._marks = of, file_range, mark, marks
        self._sender, self._buckets = sender, buckets

    def send(self) -> None:
        """What is left of it. SendFailed, InvalidOption: the mark stays before what was not acknowledged."""
        batch_sender, rows, size = self._batches(), 0, 0
        for batch in batches(self._piece, self._mark.next):
            self._buckets[0].acquire(len(batch))
            self._buckets[1].acquire(batch.nbytes)
            self._give(batch_sender, with_topics(batch, self._of.renamed))
            rows, size = rows + len(batch), size + batch.nbytes
            if size >= CHECKPOINT_BYTES:
                self._settle(batch_sender, rows)
                batch_sender, rows, size = self._batches(), 0, 0
        self._settle(batch_sender, rows)

    def _batches(self) -> BatchSender:
        """A row without a unique key gets one that says where it is from: the same if it is sent again."""
        ids = unique_ids(self._of.job, self._piece.name), self._mark.next
        return BatchSender(self._sender, self._of.sink_settings, ids)

    def _give(self, batch_sender: BatchSender, batch: pa.RecordBatch) -> None:
        try:
            batch_sender.send(batch)
        except InvalidOption as fault:
            raise InvalidOption(f"{self._piece.name}, after row {self._mark.next}: {fault}") from fault

    def _settle(self, batch_sender: BatchSender, rows: int) -> None:
        sent = batch_sender.finish()
        self._mark.count("messages", sent.messages)
        self._mark.count("bytes", sent.bytes)
        self._mark.next += rows
        self._marks.write(self._mark)


def with_topics(batch: pa.RecordBatch, renamed: Callable[[str], str]) -> pa.RecordBatch:
    """The column topic as `renamed` says; what it was is the column sourceTopic then."""
    if "topic" not in batch.schema.names:
        return batch
    coded = batch.column("topic").dictionary_encode()
    names: list[Any] = coded.dictionary.to_pylist()
    topics = [name and renamed(name) for name in names]
    if topics == names:
        return batch
    column = pa.DictionaryArray.from_arrays(coded.indices, pa.array(topics, pa.string())).dictionary_decode()
    place = batch.schema.names.index("topic")
    if "sourceTopic" not in batch.schema.names:
        batch = batch.append_column("sourceTopic", batch.column("topic"))
    return batch.set_column(place, "topic", column)
