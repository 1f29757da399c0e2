"""Verifies that every message of a slice is at the target, with the same body. In the worker.

A slice's progress has the target offsets where its messages were acknowledged. With provenance each is found there by
its source offset, and duplicates are reported; without, by its unique key. Bodies are compared by the CRCs
in both stores.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firearrow._native.columnar.batch_encoder import (
    REPLAY_BROKER,
    REPLAY_JOB,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
)
from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.columns import arrays, record_batches
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange, Source, SourceReader
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.losses import SliceLosses
from firearrow.spark_tools.jobs.queue_mapping import Routing, queue_of

READ_BYTES = 16 << 20
NAMED_MAX = 100
Pairs = tuple[NDArray[np.int64], NDArray[np.int32]]
"""Source offsets, and CRCs of bodies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask:
    """Picklable; called with the slices of one task and the files for its own progress."""

    message_source: Source
    message_filter: MessageFilter
    target: Source
    forwarded: ProgressFiles
    job: str
    provenance: bool
    routing: Routing | None = None
    """Decides which messages were not to be sent; None: all were."""

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        with self.message_source.open() as source, self.target.open() as target:
            for slice_ in slices:
                progress = SliceProgress(slice_.number, slice_.part.end)
                targets = self.forwarded.read(slice_).detail.get("targets", {})
                if self.provenance:
                    self._by_offset(source, target, slice_.part, targets, progress)
                else:
                    self._by_key(source, target, slice_.part, targets, progress)
                progress_files.write(progress)

    def _by_offset(
        self,
        source: SourceReader,
        target: SourceReader,
        part: QueueRange,
        targets: dict[str, list[int]],
        progress: SliceProgress,
    ) -> None:
        lost = SliceLosses(progress, fail=False)
        sent = joined(own_offsets(spans) for spans in self._sent(source, part, lost))
        found = joined(sent_offsets(spans, self.job, part) for spans in stored(target, targets, lost))
        compare(part, sent, found, progress)

    def _by_key(
        self,
        source: SourceReader,
        target: SourceReader,
        part: QueueRange,
        targets: dict[str, list[int]],
        progress: SliceProgress,
    ) -> None:
        lost = SliceLosses(progress, fail=False)
        sent = keyed(self._sent(source, part, lost))
        missing = sent - keyed(stored(target, targets, lost))
        progress.count("messages", sent.total())
        progress.count("missing", missing.total())
        for key, crc in list(missing)[:NAMED_MAX]:
            name(
                progress,
                f"{part}: {key or 'a message without unique key'}, body crc {crc & 0xFFFFFFFF:08x}, is missing",
            )

    def _sent(self, source: SourceReader, part: QueueRange, lost: SliceLosses) -> Iterator[Spans]:
        """The messages of the range that were to be sent."""
        route = None if self.routing is None else self.routing.route(part.queue, anywhere)
        for spans in source.read(part, self.message_filter, lost, bytes_max=READ_BYTES):
            if route is None:
                yield spans
            else:
                yield from (stretch for queue, stretch in route.of(spans) if queue is not None)


def anywhere(topic: str) -> list[MessageQueue]:
    """Any queue of the topic: only its existence matters here."""
    return [MessageQueue(topic, "", 0)]


def stored(target: SourceReader, targets: dict[str, list[int]], lost: SliceLosses) -> Iterator[Spans]:
    """All messages at the target in the ranges where the slice's messages were acknowledged."""
    for target_queue, (start, end) in targets.items():
        yield from target.read(
            QueueRange(queue_of(target_queue), start, end), MessageFilter(), lost, bytes_max=READ_BYTES
        )


def own_offsets(spans: Spans) -> Pairs:
    offsets, crcs = arrays(spans, ("queueOffset", "bodyCrc"), ())
    return offsets.to_numpy(), crcs.to_numpy()


def sent_offsets(spans: Spans, job: str, part: QueueRange) -> Pairs:
    """The messages that the job has sent from the queue of `part`."""
    queue = part.queue
    origin = {
        REPLAY_JOB: job,
        REPLAY_TOPIC: queue.topic,
        REPLAY_BROKER: queue.broker_name,
        REPLAY_QUEUE: str(queue.queue_id),
    }
    crcs, *columns, offsets = arrays(spans, ("bodyCrc",), (*origin, REPLAY_OFFSET))
    ours = pc.match_substring_regex(offsets, r"^\d{1,18}$")
    for column, text in zip(columns, origin.values(), strict=True):
        ours = pc.and_(ours, pc.equal(column, text))
    return offsets.filter(ours).cast(pa.int64()).to_numpy(), crcs.filter(ours).to_numpy()


def joined(pairs: Iterable[Pairs]) -> Pairs:
    chunks = [(np.empty(0, np.int64), np.empty(0, np.int32)), *pairs]
    return np.concatenate([offsets for offsets, _ in chunks]), np.concatenate([crcs for _, crcs in chunks])


def compare(part: QueueRange, sent: Pairs, found: Pairs, progress: SliceProgress) -> None:
    """Counts `messages`, `missing`, `wrong` (another body) and `copies` (of the same message, one after the
    first)."""
    offsets, crcs = sent
    inside = (found[0] >= part.start) & (found[0] < part.end)
    there, first = np.unique(found[0][inside], return_index=True)
    missing = np.setdiff1d(offsets, there)
    known = np.isin(found[0], offsets)
    order = np.argsort(offsets)
    expected = crcs[order][np.searchsorted(offsets, found[0][known], sorter=order)] if len(offsets) else crcs
    wrong = np.unique(found[0][known][expected != found[1][known]])
    progress.count("messages", len(offsets))
    progress.count("missing", len(missing))
    progress.count("wrong", len(wrong))
    progress.count("copies", int(inside.sum()) - len(first))
    for offset in missing[:NAMED_MAX]:
        name(progress, f"{QueueRange(part.queue, int(offset), int(offset) + 1)} is missing")
    for offset in wrong[:NAMED_MAX]:
        name(progress, f"{QueueRange(part.queue, int(offset), int(offset) + 1)} has another body")


def keyed(parts: Iterable[Spans]) -> Counter[tuple[str | None, int]]:
    """How often each pair of unique key and body CRC is there."""
    found: Counter[tuple[str | None, int]] = Counter()
    for spans in parts:
        for batch in record_batches(spans, ("uniqKey", "bodyCrc"), "", open_bodies=False):
            found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    return found


def name(progress: SliceProgress, text: str) -> None:
    named = progress.detail.setdefault("named", [])
    if len(named) < NAMED_MAX:
        named.append(text)


def verification_counts(all_progress: Iterable[SliceProgress], by: str) -> dict[str, Any]:
    """For the report."""
    counts: Counter[str] = Counter({"messages": 0, "missing": 0, "wrong": 0})
    named: list[str] = []
    lost: list[str] = []
    for progress in all_progress:
        counts.update(progress.counts)
        named += progress.detail.get("named", [])[: NAMED_MAX - len(named)]
        lost += progress.detail.get("lost", {})
    counts["unreadable"] = counts.pop("lost", 0)
    del counts["lost_ranges"]
    return {"by": by, **counts, "named": [*named, *lost][:NAMED_MAX]}
