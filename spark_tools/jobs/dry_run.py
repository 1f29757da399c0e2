"""Counts what a job would read, by tag and hour, from headers only. The task of a dry run, in the worker."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from firearrow._native.columnar.record_spans import Spans
from firearrow.spark_tools.arrow.columns import record_batches
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import Source
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.losses import SliceLosses

READ_BYTES = 16 << 20
GROUPS_MAX = 10_000
"""Pairs of tag and hour counted separately in a slice, and in the report."""
OTHERS = "(others)"
HOUR_US = 3_600_000_000
NO_TIME = -(1 << 63)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunTask:
    """Picklable; called in the worker with the slices of one task."""

    message_source: Source
    message_filter: MessageFilter
    fail_on_data_loss: bool = True

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        with self.message_source.open() as reader:
            for slice_ in slices:
                progress = SliceProgress(slice_.number, slice_.part.end)
                groups: Counter[tuple[str, str]] = Counter()
                lost = SliceLosses(progress, self.fail_on_data_loss)
                for spans in reader.read(slice_.part, self.message_filter, lost, bytes_max=READ_BYTES):
                    progress.count("messages", len(spans))
                    progress.count("bytes", spans.bytes)
                    add(groups, by_tag_and_hour(spans))
                progress.detail["groups"] = [
                    [tag, hour, count] for (tag, hour), count in sorted(groups.items())
                ]
                progress_files.write(progress)


def by_tag_and_hour(spans: Spans) -> Iterable[tuple[tuple[str, str], int]]:
    """((tag or "", hour of the store time), messages)."""
    for batch in record_batches(spans, ("tags", "storeTimestamp"), "", open_bodies=False):
        hours = batch.column(1).cast(pa.int64()).fill_null(NO_TIME).to_numpy() // HOUR_US
        table = pa.table({"tag": batch.column(0), "hour": hours})
        grouped = table.group_by(["tag", "hour"], use_threads=False).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            yield (row["tag"] or "", hour_text(row["hour"])), row["count_all"]


def hour_text(hour: int) -> str:
    """The hour as text, from hours since 1970; empty if the store time is out of range."""
    if hour == NO_TIME // HOUR_US:
        return ""
    return (EPOCH + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:00Z")


def add(groups: Counter[tuple[str, str]], found: Iterable[tuple[tuple[str, str], int]]) -> None:
    """Beyond GROUPS_MAX, count as OTHERS."""
    for (tag, hour), count in found:
        known = (tag, hour) in groups or len(groups) < GROUPS_MAX
        groups[(tag, hour) if known else (OTHERS, "")] += count


def counts_by_tag_and_hour(checkpoint: Checkpoint, all_progress: Iterable[SliceProgress]) -> dict[str, Any]:
    """For the report: messages by topic, tag and hour."""
    topics: dict[str, Counter[tuple[str, str]]] = {}
    for progress in all_progress:
        groups = topics.setdefault(checkpoint.slices[progress.number].part.queue.topic, Counter())
        add(groups, (((tag, hour), count) for tag, hour, count in progress.detail.get("groups", [])))
    return {
        topic: [
            {"tag": tag, "hour": hour, "messages": count} for (tag, hour), count in sorted(groups.items())
        ]
        for topic, groups in sorted(topics.items())
    }
