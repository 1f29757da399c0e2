"""ProgressBar: one line on stderr with what is done, its rate and the time left, at a terminal only."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Called with how much was done since the last call."""
Text = Callable[[float], str]
"""An amount, or an amount per second, with its unit."""
BAR_FROM, BAR_CHARS, BAR_CHARS_MIN, PAINT_S = 1, 30, 5, 0.1
COLUMNS = 80
"""Of a terminal whose width is unknown."""
MESSAGES = " messages"
ERASE_LINE = "\r\x1b[K"


def megabytes(amount: float) -> str:
    return f"{amount / 1e6:.1f} MB"


def messages(amount: float) -> str:
    return f"{amount:,.0f}{MESSAGES}"


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
            print(ERASE_LINE + self.text(now, _columns()), end="", file=sys.stderr, flush=True)

    def text(self, now: float, columns: int) -> str:
        """What it is, the bar, what is done and its rate, and the time left. It is shorter than `columns`: a line that
        continues on the next one is not erased whole. The bar is shorter for that, or left out."""
        share, seconds = min(1.0, self._done / self._total), now - self._start
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate > 0 else ""
        done, per_s = self._amount(self._done).split(" ")[0], self._amount(rate).removesuffix(MESSAGES)
        numbers = f"{done} of {self._amount(self._total)}, {per_s}/s"
        rest = f"{share:4.0%} {numbers} {left}".rstrip()
        chars = min(BAR_CHARS, columns - len(self._what) - len(rest) - len(" [] ") - 1)
        bar = f"[{('#' * round(share * chars)).ljust(chars)}] " if chars >= BAR_CHARS_MIN else ""
        return f"{self._what} {bar}{rest}"[: max(columns - 1, 0)]


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    except (OSError, ValueError):  # not a terminal, such as that of a test
        return COLUMNS
