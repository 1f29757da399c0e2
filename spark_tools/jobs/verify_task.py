"""Verifies that every message of a slice is at the target, with the same body. In the worker.

A mark knows where at the target a slice's messages were acknowledged. With provenance each is found there by
its source offset, and duplicates are reported; without, by its unique key. Bodies are compared by the CRCs
that both stores hold.
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
    """Picklable; called with the slices of one task and the marks that it writes itself."""

    message_source: Source
    message_filter: MessageFilter
    target: Source
    forwarded: ProgressFiles
    job: str
    provenance: bool
    routing: Routing | None = None
    """What tells which messages were not to be sent; None: all were."""

    def __call__(self, slices: Sequence[Slice], marks: ProgressFiles) -> None:
        with self.message_source.open() as source, self.target.open() as target:
            for piece in slices:
                mark = SliceProgress(piece.number, piece.part.end)
                places = self.forwarded.read(piece).detail.get("targets", {})
                if self.provenance:
                    self._by_offset(source, target, piece.part, places, mark)
                else:
                    self._by_key(source, target, piece.part, places, mark)
                marks.write(mark)

    def _by_offset(
        self,
        source: SourceReader,
        target: SourceReader,
        part: QueueRange,
        places: dict[str, list[int]],
        mark: SliceProgress,
    ) -> None:
        lost = SliceLosses(mark, fail=False)
        wanted = joined(own_offsets(spans) for spans in self._sent(source, part, lost))
        found = joined(sent_offsets(spans, self.job, part) for spans in stored(target, places, lost))
        compare(part, wanted, found, mark)

    def _by_key(
        self,
        source: SourceReader,
        target: SourceReader,
        part: QueueRange,
        places: dict[str, list[int]],
        mark: SliceProgress,
    ) -> None:
        lost = SliceLosses(mark, fail=False)
        wanted = keyed(self._sent(source, part, lost))
        missing = wanted - keyed(stored(target, places, lost))
        mark.count("messages", wanted.total())
        mark.count("missing", missing.total())
        for key, crc in list(missing)[:NAMED_MAX]:
            name(
                mark,
                f"{part}: {key or 'a message without unique key'}, body crc {crc & 0xFFFFFFFF:08x}, is missing",
            )

    def _sent(self, source: SourceReader, part: QueueRange, lost: SliceLosses) -> Iterator[Spans]:
        """What of the part was to be sent."""
        route = None if self.routing is None else self.routing.route(part.queue, anywhere)
        for spans in source.read(part, self.message_filter, lost, bytes_max=READ_BYTES):
            if route is None:
                yield spans
            else:
                yield from (stretch for queue, stretch in route.of(spans) if queue is not None)


def anywhere(topic: str) -> list[MessageQueue]:
    """Some queue of the topic: here it matters only that there is one."""
    return [MessageQueue(topic, "", 0)]


def stored(target: SourceReader, places: dict[str, list[int]], lost: SliceLosses) -> Iterator[Spans]:
    """All that is at the target where the slice's messages were acknowledged."""
    for place, (start, end) in places.items():
        yield from target.read(
            QueueRange(queue_of(place), start, end), MessageFilter(), lost, bytes_max=READ_BYTES
        )


def own_offsets(spans: Spans) -> Pairs:
    offsets, crcs = arrays(spans, ("queueOffset", "bodyCrc"), ())
    return offsets.to_numpy(), crcs.to_numpy()


def sent_offsets(spans: Spans, job: str, part: QueueRange) -> Pairs:
    """Of those that the job brought from the part's queue."""
    queue = part.queue
    brought = {
        REPLAY_JOB: job,
        REPLAY_TOPIC: queue.topic,
        REPLAY_BROKER: queue.broker_name,
        REPLAY_QUEUE: str(queue.queue_id),
    }
    crcs, *marks, offsets = arrays(spans, ("bodyCrc",), (*brought, REPLAY_OFFSET))
    ours = pc.match_substring_regex(offsets, r"^\d{1,18}$")
    for found, text in zip(marks, brought.values(), strict=True):
        ours = pc.and_(ours, pc.equal(found, text))
    return offsets.filter(ours).cast(pa.int64()).to_numpy(), crcs.filter(ours).to_numpy()


def joined(pairs: Iterable[Pairs]) -> Pairs:
    held = [(np.empty(0, np.int64), np.empty(0, np.int32)), *pairs]
    return np.concatenate([offsets for offsets, _ in held]), np.concatenate([crcs for _, crcs in held])


def compare(part: QueueRange, wanted: Pairs, found: Pairs, mark: SliceProgress) -> None:
    """Counts `messages`, `missing`, `wrong` (another body) and `copies` (of the same message, one after the
    first)."""
    offsets, crcs = wanted
    inside = (found[0] >= part.start) & (found[0] < part.end)
    there, first = np.unique(found[0][inside], return_index=True)
    missing = np.setdiff1d(offsets, there)
    known = np.isin(found[0], offsets)
    order = np.argsort(offsets)
    expected = crcs[order][np.searchsorted(offsets, found[0][known], sorter=order)] if len(offsets) else crcs
    wrong = np.unique(found[0][known][expected != found[1][known]])
    mark.count("messages", len(offsets))
    mark.count("missing", len(missing))
    mark.count("wrong", len(wrong))
    mark.count("copies", int(inside.sum()) - len(first))
    for offset in missing[:NAMED_MAX]:
        name(mark, f"{QueueRange(part.queue, int(offset), int(offset) + 1)} is missing")
    for offset in wrong[:NAMED_MAX]:
        name(mark, f"{QueueRange(part.queue, int(offset), int(offset) + 1)} has another body")


def keyed(parts: Iterable[Spans]) -> Counter[tuple[str | None, int]]:
    """How often each pair of unique key and body CRC is there."""
    found: Counter[tuple[str | None, int]] = Counter()
    for spans in parts:
        for batch in record_batches(spans, ("uniqKey", "bodyCrc"), "", open_bodies=False):
            found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    return found


def name(mark: SliceProgress, text: str) -> None:
    named = mark.detail.setdefault("named", [])
    if len(named) < NAMED_MAX:
        named.append(text)


def verification_counts(marks: Iterable[SliceProgress], by: str) -> dict[str, Any]:
    """For the report."""
    counts: Counter[str] = Counter({"messages": 0, "missing": 0, "wrong": 0})
    named: list[str] = []
    lost: list[str] = []
    for mark in marks:
        counts.update(mark.counts)
        named += mark.detail.get("named", [])[: NAMED_MAX - len(named)]
        lost += mark.detail.get("lost", {})
    counts["unreadable"] = counts.pop("lost", 0)
    del counts["lost_ranges"]
    return {"by": by, **counts, "named": [*named, *lost][:NAMED_MAX]}
