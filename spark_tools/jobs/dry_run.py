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

    def __call__(self, slices: Sequence[Slice], marks: ProgressFiles) -> None:
        with self.message_source.open() as reader:
            for piece in slices:
                mark = SliceProgress(piece.number, piece.part.end)
                groups: Counter[tuple[str, str]] = Counter()
                lost = SliceLosses(mark, self.fail_on_data_loss)
                for spans in reader.read(piece.part, self.message_filter, lost, bytes_max=READ_BYTES):
                    mark.count("messages", len(spans))
                    mark.count("bytes", spans.bytes)
                    add(groups, by_tag_and_hour(spans))
                mark.detail["groups"] = [[tag, hour, count] for (tag, hour), count in sorted(groups.items())]
                marks.write(mark)


def by_tag_and_hour(spans: Spans) -> Iterable[tuple[tuple[str, str], int]]:
    """((tag or nothing, hour of storing), messages)."""
    for batch in record_batches(spans, ("tags", "storeTimestamp"), "", open_bodies=False):
        hours = batch.column(1).cast(pa.int64()).fill_null(NO_TIME).to_numpy() // HOUR_US
        table = pa.table({"tag": batch.column(0), "hour": hours})
        grouped = table.group_by(["tag", "hour"], use_threads=False).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            yield (row["tag"] or "", hour_text(row["hour"])), row["count_all"]


def hour_text(hour: int) -> str:
    """Of hours since 1970; nothing if the store holds no time of this calendar."""
    if hour == NO_TIME // HOUR_US:
        return ""
    return (EPOCH + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:00Z")


def add(groups: Counter[tuple[str, str]], found: Iterable[tuple[tuple[str, str], int]]) -> None:
    """Beyond GROUPS_MAX, count as OTHERS."""
    for (tag, hour), count in found:
        known = (tag, hour) in groups or len(groups) < GROUPS_MAX
        groups[(tag, hour) if known else (OTHERS, "")] += count


def told(checkpoint: Checkpoint, marks: Iterable[SliceProgress]) -> dict[str, Any]:
    """For the report: messages by topic, tag and hour."""
    topics: dict[str, Counter[tuple[str, str]]] = {}
    for mark in marks:
        groups = topics.setdefault(checkpoint.slices[mark.number].part.queue.topic, Counter())
        add(groups, (((tag, hour), count) for tag, hour, count in mark.detail.get("groups", [])))
    return {
        topic: [
            {"tag": tag, "hour": hour, "messages": count} for (tag, hour), count in sorted(groups.items())
        ]
        for topic, groups in sorted(topics.items())
    }
