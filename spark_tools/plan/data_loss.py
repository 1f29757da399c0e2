"""Ranges that are missing: an error that names them, or a count and warnings.

Each DataLosses belongs to one plan or one task and is used by one thread.
"""

import logging

from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange

NAMED_MAX = 20
REPORTED_MAX = 10_000
log = logging.getLogger("firearrow.spark")


class DataLosses:
    """An `OnDataLoss`. `fail`: `check` raises. Otherwise each range is counted and logged once. `then` is
    called once for each range."""

    def __init__(self, fail: bool, then: OnDataLoss | None = None) -> None:
        self.fail = fail
        self.then = then
        self.ranges = 0
        self.messages = 0
        self._named: list[str] = []
        self._reported: set[QueueRange] = set()

    def __call__(self, part: QueueRange, why: str) -> None:
        if part in self._reported:
            return
        if len(self._reported) < REPORTED_MAX:
            self._reported.add(part)
        self.ranges += 1
        self.messages += len(part)
        text = f"{part}: {why}"
        if len(self._named) < NAMED_MAX:
            self._named.append(text)
        if not self.fail:
            log.warning("data loss: %s", text)
        if self.then is not None:
            self.then(part, why)

    def check(self) -> None:
        """DataLoss that names the ranges reported so far, if `fail` is set."""
        if self.fail and self.ranges:
            raise DataLoss(str(self))

    def __str__(self) -> str:
        more = self.ranges - len(self._named)
        named = "; ".join(self._named) + (f"; and {more} more" if more else "")
        return (
            f"{self.messages} messages are missing: {named}; to read the rest, set failOnDataLoss=false, or "
            "--no-fail-on-data-loss for a job"
        )


class FailFast(DataLosses):
    """Raises at the first loss; used while reading."""

    def __call__(self, part: QueueRange, why: str) -> None:
        super().__call__(part, why)
        self.check()
