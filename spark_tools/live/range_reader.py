"""RangeReader: combines the pull responses for one range and reports missing offsets.

The next pulls are in flight while the caller handles a chunk. One thread.
"""

import time
from collections.abc import Iterator

from firearrow._native.columnar.record_spans import Spans, from_answer
from firearrow._native.wire.codes import ResponseCode
from firearrow.spark_tools.base.source import LMQ_PREFIX, OnDataLoss, QueueRange
from firearrow.spark_tools.live.pull_pipeline import PullAnswer, PullPipeline

SUSPEND_MS = 1000
REST_S = 0.05
INNER_BATCH = 0x80


class RangeReader:
    """Reads `part` from `start`. `news_s`: how long to wait for records that should exist."""

    def __init__(
        self,
        pulls: PullPipeline,
        part: QueueRange,
        start: int,
        on_data_loss: OnDataLoss,
        *,
        news_s: float,
        everything: bool,
    ) -> None:
        """`everything`: the broker applies no filter."""
        self.done = start
        """The offset after everything that was yielded."""
        self._pulls = pulls
        self._part = part
        self._at = start
        self._on_data_loss = on_data_loss
        self._news_s = news_s
        self._everything = everything
        self._light = part.queue.topic.startswith(LMQ_PREFIX)
        self._nothing_since: float | None = None

    def of(self, bytes_max: int) -> Iterator[Spans]:
        """Yield chunks of about `bytes_max`. Errors of PullPipeline.answer, RecordError, and what
        `on_data_loss` raises."""
        while self._at < self._part.end:
            bodies, covered = self._gathered(bytes_max)
            if self._at < self._part.end:
                self._pulls.ask(self._at)
            if bodies:
                spans = from_answer(bodies[0] if len(bodies) == 1 else b"".join(bodies))
                self._report_gaps(spans, covered)
                self.done = self._at
                yield self._within(spans)
            self.done = self._at

    def _gathered(self, bytes_max: int) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Bodies of responses, and the offsets (start, end) that each covers."""
        bodies: list[bytes] = []
        covered: list[tuple[int, int]] = []
        size = 0
        while self._at < self._part.end and size < bytes_max:
            answer = self._pulls.answer(self._at)
            if answer.code == ResponseCode.SUCCESS and answer.body and answer.next > self._at:
                bodies.append(answer.body)
                covered.append((self._at, answer.next))
                size += len(answer.body)
                self._move(answer.next)
            else:
                self._nothing(answer)
        return bodies, covered

    def _move(self, queue_offset: int) -> None:
        self._at = queue_offset
        self._nothing_since = None
        self._pulls.suspend_ms = 0

    # ---- what is not there ----

    def _nothing(self, answer: PullAnswer) -> None:
        if answer.next > self._at:
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                self._lose(answer.next, f"the queue now begins at {answer.first}")
            elif self._everything:
                self._lose(answer.next, "the broker skips these offsets")
            self._move(answer.next)
            return
        now = time.monotonic()
        if self._nothing_since is None:
            self._nothing_since = now
            self._pulls.suspend_ms = SUSPEND_MS
        elif now - self._nothing_since > self._news_s:
            self._lose(
                self._part.end, f"the queue ends at {answer.end} and no message came for {self._news_s:g} s"
            )
            self._move(self._part.end)
            return
        time.sleep(REST_S)  # brokers hold a pull only at the exact end of a queue

    def _lose(self, stop: int, why: str) -> None:
        self._on_data_loss(QueueRange(self._part.queue, self._at, min(stop, self._part.end)), why)

    def _report_gaps(self, spans: Spans, covered: list[tuple[int, int]]) -> None:
        """Report offsets without a record, unless a filter is set or one record covers several offsets."""
        if not self._everything or self._light or len(spans) == sum(stop - at for at, stop in covered):
            return
        offsets = iter([(spans.queue_offset(n), spans.sys_flag(n)) for n in range(len(spans))])
        found = next(offsets, None)
        for start, stop in covered:
            expected, several = start, False
            while found is not None and found[0] < stop:
                if found[0] > expected and not several:
                    self._report_gap(expected, found[0])
                expected, several = found[0] + 1, bool(found[1] & INNER_BATCH)
                found = next(offsets, None)
            if expected < stop and not several:
                self._report_gap(expected, stop)

    def _report_gap(self, start: int, stop: int) -> None:
        gap = QueueRange(self._part.queue, start, min(stop, self._part.end))
        if len(gap):
            self._on_data_loss(gap, "the broker has no record of these offsets")

    def _within(self, spans: Spans) -> Spans:
        """Drop records past the end: with a filter, brokers limit only the records that they return."""
        count = len(spans)
        while count and not self._light and spans.queue_offset(count - 1) >= self._part.end:
            count -= 1
        return spans if count == len(spans) else spans.slice(0, count)
