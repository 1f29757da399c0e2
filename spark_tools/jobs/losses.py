"""Losses of a plan or of a slice: an error, or counts and the first of them by name. One thread."""

from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import SliceProgress
from firearrow.spark_tools.plan.data_loss import DataLosses, FailFast

NAMED_MAX = 1000
LOST_WHOLE = "lost whole"
"""In a mark's detail: nothing of what was left of the slice is read."""
Counts = dict[str, int]
"""`lost` messages in `lost_ranges`."""


class SliceLosses:
    """The OnDataLoss of a slice that is read in one go."""

    def __init__(self, progress: SliceProgress, fail: bool) -> None:
        self.progress = progress
        self.fail = fail

    def __call__(self, part: QueueRange, why: str) -> None:
        """DataLoss if losses are to fail."""
        FailFast(self.fail)(part, why)
        self.count(part, why)

    def count(self, part: QueueRange, why: str) -> None:
        add(self.progress.counts, part)
        name(self.progress.detail.setdefault("lost", {}), part, why)


class ResumedSliceLosses(SliceLosses):
    """Losses of a slice that can resume. Losses after its progress are reported again then, so a loss
    counts only when the progress is past it."""

    def __init__(self, progress: SliceProgress, fail: bool) -> None:
        super().__init__(progress, fail)
        self._beyond_progress: list[tuple[QueueRange, str]] = []

    def __call__(self, part: QueueRange, why: str) -> None:
        """DataLoss if losses are to fail."""
        FailFast(self.fail)(part, why)
        self._beyond_progress.append((part, why))

    def settle(self) -> None:
        """Call it before the progress is written."""
        pending, self._beyond_progress = self._beyond_progress, []
        for part, why in pending:
            if part.end <= self.progress.next:
                self.count(part, why)
            else:
                self._beyond_progress.append((part, why))


class PlanLosses(DataLosses):
    """The OnDataLoss of the driver, which names all of them before it fails. A range that is reported twice counts
    once."""

    def __init__(self, fail: bool) -> None:
        super().__init__(fail, self._count)
        self.named: dict[str, int] = {}
        self.by_topic: dict[str, Counts] = {}

    def _count(self, part: QueueRange, why: str) -> None:
        add(self.by_topic.setdefault(part.queue.topic, {}), part)
        name(self.named, part, why)


def add(counts: Counts, part: QueueRange) -> None:
    for kind, count in (("lost", len(part)), ("lost_ranges", 1)):
        counts[kind] = counts.get(kind, 0) + count


def name(named: dict[str, int], part: QueueRange, why: str) -> None:
    """Messages by range and why, at most NAMED_MAX."""
    if len(named) < NAMED_MAX:
        named[f"{part}: {why}"] = len(part)
