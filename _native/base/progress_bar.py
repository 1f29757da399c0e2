"""ProgressBar: one line on stderr with what is done, its rate and the time left, at a terminal only."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Called with how much was done since the last call."""
Text = Callable[[float], str]
"""An amount, or an amount per second, with its unit."""
BAR_FROM, BAR_CHARS, PAINT_S = 1, 30, 0.1
ERASE_LINE = "\r\x1b[K"


def megabytes(amount: float) -> str:
    return f"{amount / 1e6:.1f} MB"


def messages(amount: float) -> str:
    return f"{amount:,.0f} messages"


@contextmanager
def progress_bar(
    what: str, total: int, *, quiet: bool, done: int = 0, text: Text = megabytes
) -> Iterator[Advance]:
    """Show a bar for `total` until the context ends; `done`: how much of it an earlier run did."""
    if quiet or total < BAR_FROM or not sys.stderr.isatty():
        yield lambda _: None
        return
    bar = ProgressBar(what, total, time.monotonic, done, text)
    try:
        yield bar.advance
    finally:
        print(ERASE_LINE, end="", file=sys.stderr, flush=True)


class ProgressBar:
    """One line of a terminal, drawn again at most every PAINT_S."""

    def __init__(
        self, what: str, total: int, clock: Callable[[], float], done: int = 0, text: Text = megabytes
    ) -> None:
        self._what, self._total, self._clock, self._amount = what, total, clock, text
        self._before = self._done = done
        self._start = clock()
        self._painted = -math.inf
        self.advance(0)

    def advance(self, count: int) -> None:
        self._done += count
        now = self._clock()
        if now - self._painted >= PAINT_S:
            self._painted = now
            print(ERASE_LINE + self.text(now), end="", file=sys.stderr, flush=True)

    def text(self, now: float) -> str:
        """What it is, the bar, what is done and its rate, and the time left."""
        share, seconds = min(1.0, self._done / self._total), now - self._start
        bar = ("#" * round(share * BAR_CHARS)).ljust(BAR_CHARS)
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate > 0 else ""
        done, unit = self._amount(self._done).split(" ")
        numbers = f"{done} of {self._amount(self._total)}, {self._amount(rate).split(' ')[0]} {unit}/s"
        return f"{self._what} [{bar}] {share:4.0%} {numbers} {left}".rstrip()
