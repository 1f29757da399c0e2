"""Sends the files of one chain to a cluster, in the worker: Arrow → batches → socket.

Progress advances only past rows that the target has acknowledged, so rows are sent at least once. Its detail
`topics` has what was sent by the topic in the rows. One thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firearrow.spark_tools.arrow.batch_sender import BatchSender, SentTotals, SinkSettings, unique_ids
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.parquet_input import FileRange, batches
from firearrow.spark_tools.jobs.rate_limit import UNLIMITED, RateLimits, TokenBucket
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender

CHECKPOINT_BYTES = 32 << 20
"""Bytes sent before their acknowledgements are awaited and the progress is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """Picklable; called in the worker with the slices of one chain. `renamed`: the target topic for a row's
    topic."""

    file_ranges: Mapping[str, FileRange]
    target: Cluster
    sink_settings: SinkSettings
    renamed: Callable[[str], str]
    job: str
    rates: RateLimits = UNLIMITED
    timeout_s: float = 60

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        buckets = TokenBucket(self.rates.messages), TokenBucket(self.rates.bytes)
        with Sender(self.target, timeout_s=self.timeout_s) as sender:
            for slice_ in slices:
                progress = progress_files.read(slice_)
                if progress.next < slice_.part.end:
                    FileSender(
                        self,
                        self.file_ranges[slice_.part.queue.topic],
                        progress,
                        progress_files,
                        sender,
                        buckets,
                    ).send()


class FileSender:
    """Sends the rows of one FileRange."""

    def __init__(
        self,
        of: ImportTask,
        file_range: FileRange,
        progress: SliceProgress,
        progress_files: ProgressFiles,
        sender: Sender,
        buckets: tuple[TokenBucket, TokenBucket],
    ) -> None:
        self._of, self._file_range, self._progress, self._progress_files = (
            of,
            file_range,
            progress,
            progress_files,
        )
        self._sender, self._buckets = sender, buckets
        self._rows: Counter[str] = Counter()
        """Rows by topic since the progress was written."""

    def send(self) -> None:
        """Send the remaining rows. SendFailed, InvalidOption: the progress stays before unacknowledged rows."""
        batch_sender, rows, size = self._batches(), 0, 0
        for batch in batches(self._file_range, self._progress.next):
            self._buckets[0].acquire(len(batch))
            self._buckets[1].acquire(batch.nbytes)
            self._rows += topic_rows(batch, self._of.sink_settings.topic)
            self._send_batch(batch_sender, with_topics(batch, self._of.renamed))
            rows, size = rows + len(batch), size + batch.nbytes
            if size >= CHECKPOINT_BYTES:
                self._settle(batch_sender, rows)
                batch_sender, rows, size = self._batches(), 0, 0
        self._settle(batch_sender, rows)

    def _batches(self) -> BatchSender:
        """A row without a unique key gets one made of its file and row: the same if it is sent again."""
        ids = unique_ids(self._of.job, self._file_range.name), self._progress.next
        return BatchSender(self._sender, self._of.sink_settings, ids)

    def _send_batch(self, batch_sender: BatchSender, batch: pa.RecordBatch) -> None:
        try:
            batch_sender.send(batch)
        except InvalidOption as fault:
            raise InvalidOption(
                f"{self._file_range.name}, after row {self._progress.next}: {fault}"
            ) from fault

    def _settle(self, batch_sender: BatchSender, rows: int) -> None:
        sent = batch_sender.finish()
        self._progress.count("messages", sent.messages)
        self._progress.count("bytes", sent.bytes)
        self._count_topics(sent)
        self._progress.next += rows
        self._progress_files.write(self._progress)

    def _count_topics(self, sent: SentTotals) -> None:
        """Topics that are sent to the same one share its bytes by their rows."""
        counts = self._progress.detail.setdefault("topics", {})
        at_target: Counter[str] = Counter()
        for topic, rows in self._rows.items():
            at_target[self._target(topic)] += rows
        for topic, rows in self._rows.items():
            target = self._target(topic)
            of_topic = counts.setdefault(topic, {"messages": 0, "bytes": 0})
            of_topic["messages"] += rows
            of_topic["bytes"] += sent.topics.get(target, (0, 0))[1] * rows // at_target[target]
        self._rows.clear()

    def _target(self, topic: str) -> str:
        return self._of.sink_settings.topic or self._of.renamed(topic)


def topic_rows(batch: pa.RecordBatch, topic: str | None) -> Counter[str]:
    """The number of rows of each topic; `topic`: of rows without one."""
    if "topic" not in batch.schema.names:
        return Counter({topic or "": batch.num_rows})
    found = batch.column("topic").value_counts().to_pylist()
    return Counter({each["values"] or topic or "": each["counts"] for each in found})


def with_topics(batch: pa.RecordBatch, renamed: Callable[[str], str]) -> pa.RecordBatch:
    """Rename the topics; if any changes, the column sourceTopic has the original ones."""
    if "topic" not in batch.schema.names:
        return batch
    coded = batch.column("topic").dictionary_encode()
    names: list[Any] = coded.dictionary.to_pylist()
    topics = [name and renamed(name) for name in names]
    if topics == names:
        return batch
    column = pa.DictionaryArray.from_arrays(coded.indices, pa.array(topics, pa.string())).dictionary_decode()
    index = batch.schema.names.index("topic")
    if "sourceTopic" not in batch.schema.names:
        batch = batch.append_column("sourceTopic", batch.column("topic"))
    return batch.set_column(index, "topic", column)
