"""Saver: brings tables to their files, in the background and not more often than needed.

Loop thread; writes in another.

A table that says `soon` is written after a short delay, so that a thousand changes are one write; a table with a
period is written when it changed since. The text is made from a snapshot in the writing thread.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

log = logging.getLogger("firearrow.saver")

SOON_S = 0.05


@dataclass(slots=True)
class Saved:
    """`save()` writes the table's file and may run in another thread."""

    name: str
    save: Callable[[], None]
    changed: bool = False
    failing: bool = False


class Saver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tables: dict[str, Saved] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._stopped = False

    def add(self, name: str, save: Callable[[], None]) -> None:
        self._tables[name] = Saved(name, save)

    def soon(self, name: str) -> None:
        """The table changed; its file follows shortly."""
        self.changed(name)
        if name not in self._timers and not self._stopped:
            self._timers[name] = self._loop.call_later(SOON_S, self._write, name)

    def changed(self, name: str) -> None:
        """The table changed; its file follows with the next `every`, or at stop."""
        self._tables[name].changed = True

    def every(self, name: str, period_ms: Callable[[], int]) -> None:
        """Write the table's file each period in which it changed."""

        def again() -> None:
            if self._stopped:
                return
            if self._tables[name].changed:
                self._write(name)
            self._loop.call_later(period_ms() / 1000, again)

        self._loop.call_later(period_ms() / 1000, again)

    def stop(self) -> None:
        """Write what changed and return when all files are there."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._writer.shutdown(wait=True)
        for table in self._tables.values():
            if table.changed:
                table.save()
                table.changed = False

    def _write(self, name: str) -> None:
        self._timers.pop(name, None)
        if self._stopped:
            return
        table = self._tables[name]
        table.changed = False
        future = self._writer.submit(table.save)
        future.add_done_callback(lambda done: self._done(table, done))

    def _done(self, table: Saved, done: "Future[None]") -> None:
        error = done.exception()
        if error is None:
            table.failing = False
            return
        table.changed = True
        if not table.failing:
            log.error("cannot write the %s file, will try again: %s", table.name, error)
        table.failing = True
