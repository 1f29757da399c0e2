"""Losses of a plan or of a slice: named for the report, or an error. A range that is told twice counts once."""

from dataclasses import dataclass

from firearrow.spark_tools.jobs.marks import Mark
from firearrow.spark_tools.origin import QueueRange
from firearrow.spark_tools.plan.loss import AtOnce, Losses

NAMED_MAX = 1000


@dataclass(frozen=True, slots=True)
class NamedLosses:
    """A `Lost`."""

    mark: Mark
    fail: bool

    def __call__(self, part: QueueRange, why: str) -> None:
        """DataLoss if losses are to fail."""
        AtOnce(self.fail)(part, why)
        named = self.mark.detail.setdefault("lost", {})
        if len(named) < NAMED_MAX:
            named[f"{part}: {why}"] = len(part)


class PlanLosses(Losses):
    """A `Lost` of the driver, which names all of them before it fails."""

    def __init__(self, fail: bool) -> None:
        super().__init__(fail)
        self.by_range: dict[str, int] = {}

    def __call__(self, part: QueueRange, why: str) -> None:
        super().__call__(part, why)
        if len(self.by_range) < NAMED_MAX:
            self.by_range[f"{part}: {why}"] = len(part)
