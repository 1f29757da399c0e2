"""Saver: brings tables to their files, in the background and not more often than needed.

A table that says `soon` is written after a short delay, so that a thousand changes are one write; `saved` says when the
file is there. One that only `changed` is written at stop, or when somebody says `soon`. The text is made from a
snapshot in the writing thread. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

log = logging.getLogger("firearrow.saver")

SOON_S = 0.02
AGAIN_S = 5.0


@dataclass(slots=True)
class Saved:
    """`save()` writes the table's file and may run in another thread."""

    name: str
    save: Callable[[], None]
    changed: bool = False
    writing: bool = False
    failing: bool = False
    timer: asyncio.TimerHandle | None = None


class Saver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tables: dict[str, Saved] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._stopped = False

    def add(self, name: str, save: Callable[[], None]) -> None:
        self._tables[name] = Saved(name, save)

    def save_changed(self) -> asyncio.Future[None]:
        """Write all that changed; done as `saved` is."""
        for table in self._tables.values():
            if table.changed:
                self._write_in(table, 0)
        return self.saved()

    def soon(self, name: str) -> None:
        """The table changed; its file follows shortly."""
        self.changed(name)
        self._write_in(self._tables[name], SOON_S)

    def changed(self, name: str) -> None:
        """The table changed; its file follows at stop, or with the next `soon`."""
        self._tables[name].changed = True

    @property
    def failing(self) -> bool:
        """Whether the file of a table could not be written."""
        return any(table.failing for table in self._tables.values())

    @property
    def busy(self) -> bool:
        """Whether something that was to be written soon is not yet in its file."""
        return any(
            (table.timer is not None or table.writing) and not table.failing
            for table in self._tables.values()
        )

    def saved(self) -> asyncio.Future[None]:
        """Done when what is to be written soon is in its file, or cannot be written now (the log says so).

        Those who ask are told in the order in which they asked.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if self.busy:
            self._waiting.append(future)
        else:
            future.set_result(None)
        return future

    def stop(self) -> None:
        """Write what changed and return when all files are there."""
        self._stopped = True
        for table in self._tables.values():
            if table.timer is not None:
                table.timer.cancel()
        self._writer.shutdown(wait=True)
        for table in self._tables.values():
            if table.changed:
                table.save()
                table.changed = False

    def _write_in(self, table: Saved, seconds: float) -> None:
        if table.timer is None and not self._stopped:
            table.timer = self._loop.call_later(seconds, self._write, table)

    def _write(self, table: Saved) -> None:
        if table.timer is not None:
            table.timer.cancel()
            table.timer = None
        if self._stopped:
            return
        table.changed, table.writing = False, True
        done = self._loop.run_in_executor(self._writer, table.save)
        done.add_done_callback(lambda future: self._done(table, future.exception()))

    def _done(self, table: Saved, error: BaseException | None) -> None:
        table.writing = False
        if error is not None:
            if not table.failing:
                log.error("cannot write the %s file, will try again: %s", table.name, error)
            table.changed = True
            self._write_in(table, AGAIN_S)
        table.failing = error is not None
        if not self.busy:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()
