"""Unsent: what a client could not send, or store, until its end; one line on stderr states how much and why.

Results that no caller reads are failures that no one sees, and a script may have no logging. Any thread.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from firearrow.client.base import greenlets

Result = TypeVar("Result")

REASONS_SHOWN = 5
REASONS_MAX = 100
"""Different reasons that are kept; the others are counted together."""
OTHERS = "other reasons"


class Unsent:
    """`what` names the things, with a `{}` for how many. `by_future`: each is counted by an UnreadFuture."""

    def __init__(self, what: str) -> None:
        self.by_future = False
        self._what = what
        self._reasons: Counter[str] = Counter()
        self._lock = greenlets.of_system("_thread", "allocate_lock")()

    def failed(self, error: BaseException | str, count: int = 1) -> str:
        """Count a failure. Returns its reason, for `read`."""
        reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        with self._lock:
            if reason not in self._reasons and len(self._reasons) >= REASONS_MAX:
                reason = OTHERS
            self._reasons[reason] += count
        return reason

    def read(self, reason: str) -> None:
        """A caller has read the result of a failure that was counted, or reported, before."""
        with self._lock:
            if self._reasons[reason] > 1:
                self._reasons[reason] -= 1
            else:
                del self._reasons[reason]

    def report(self) -> None:
        """Report what was counted since the last report."""
        with self._lock:
            reasons, self._reasons = self._reasons, Counter()
        if not reasons or sys.stderr is None:
            return
        shown = [f"{count} times {reason}" for reason, count in reasons.most_common(REASONS_SHOWN)]
        left = reasons.total() - sum(count for _, count in reasons.most_common(REASONS_SHOWN))
        if left:
            shown.append(f"{left} times {OTHERS}")
        print(
            f"firearrow: {self._what.format(reasons.total())}: {'; '.join(shown)}",
            file=sys.stderr,
            flush=True,
        )


class UnreadFuture(Future[Result]):
    """A future whose failure is counted in `unsent` until a caller reads it, or registers a callback.

    The loop's thread fails it, any thread reads it. `of_greenlets`: those of another thread.
    """

    _reason: str | None = None
    _watched = False

    def __init__(self, unsent: Unsent, *, of_greenlets: bool = False) -> None:
        super().__init__()
        self.unsent = unsent
        if of_greenlets:  # a lock of gevent could stop the thread that sets the result
            self._condition = threading.Condition(greenlets.of_system("_thread", "RLock")())

    def fail(self, error: BaseException) -> None:
        if not self._watched:
            self._reason = self.unsent.failed(error)
        self.set_exception(error)

    def result(self, timeout: float | None = None) -> Result:
        try:
            return Future.result(self, timeout)
        finally:
            if self._reason is not None:
                self._read()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return Future.exception(self, timeout)
        finally:
            if self._reason is not None:
                self._read()

    def add_done_callback(self, fn: Callable[[Future[Result]], Any]) -> None:
        self._watched = True
        super().add_done_callback(fn)
        if self._reason is not None:
            self._read()

    def _read(self) -> None:
        reason = self.__dict__.pop("_reason", None) if self.done() else None  # one of several readers gets it
        if reason is not None:
            self.unsent.read(reason)
