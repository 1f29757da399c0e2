"""What becomes of ranges that were asked for and are not there: an error that names them, or a count and a warning.

A Losses belongs to one plan or one task and is used by one thread.
"""

import logging

from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange

NAMED_MAX = 20
REPORTED_MAX = 10_000
log = logging.getLogger("firearrow.spark")


class DataLosses:
    """A `OnDataLoss`. `fail`: `check` raises; else each is warned of once and counted. `then` is told of each once, too."""

    def __init__(self, fail: bool, then: OnDataLoss | None = None) -> None:
        self.fail = fail
        self.then = then
        self.ranges = 0
        self.messages = 0
        self._named: list[str] = []
        self._told: set[QueueRange] = set()

    def __call__(self, part: QueueRange, why: str) -> None:
        if part in self._told:
            return
        if len(self._told) < REPORTED_MAX:
            self._told.add(part)
        self.ranges += 1
        self.messages += len(part)
        text = f"{part}: {why}"
        if len(self._named) < NAMED_MAX:
            self._named.append(text)
        if not self.fail:
            log.warning("lost %s", text)
        if self.then is not None:
            self.then(part, why)

    def check(self) -> None:
        """DataLoss with all ranges told so far, if losses are to fail."""
        if self.fail and self.ranges:
            raise DataLoss(str(self))

    def __str__(self) -> str:
        more = self.ranges - len(self._named)
        named = "; ".join(self._named) + (f"; and {more} more" if more else "")
        return (
            f"{self.messages} messages are gone: {named}; failOnDataLoss=false, or --no-fail-on-data-loss of a job, "
            "reads what is left"
        )


class FailFast(DataLosses):
    """For the reading itself: the first loss ends it."""

    def __call__(self, part: QueueRange, why: str) -> None:
        super().__call__(part, why)
        self.check()
