"""Saver: brings tables to their files, in the background and not more often than needed.

A table that says `schedule` is written after a short delay, so that a thousand changes are one write; `saved` says when the
file is there. One that only `changed` is written at stop, or when somebody says `schedule`. The text is made from a
snapshot in the writing thread. Loop thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from firearrow.broker.base.process import single_thread_executor

log = logging.getLogger("firearrow.saver")

SAVE_DELAY_S = 0.02
RETRY_S = 5.0


@dataclass(slots=True)
class SavedTable:
    """`save()` writes the table's file and may run in another thread."""

    name: str
    save: Callable[[], None]
    changes: int = 0
    """Counts what was changed; `tried` of them were to be written, `written` of them are in the file."""
    tried: int = 0
    written: int = 0
    writing: int = 0
    failing: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def changed(self) -> bool:
        return self.changes != self.written

    @property
    def busy(self) -> bool:
        """It is to be written soon, or is being written; a try that failed is over, though another one follows."""
        return (self.timer is not None or self.writing > 0) and self.tried < self.changes


class TableSaver:
    """`sync_to_disk()` brings log and journal to the disk, in the writing thread: files of progress must not be ahead of what
    they speak of, and what the journal holds of older progress must not come back behind them. OSError."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sync_to_disk: Callable[[], None] = lambda: None
    ) -> None:
        self.sync_to_disk = sync_to_disk
        self._loop = loop
        self._tables: dict[str, SavedTable] = {}
        self._waiting: deque[tuple[asyncio.Future[bool], dict[str, int]]] = deque()
        self._writer = single_thread_executor("saver")
        self._stopped = False

    def add(self, name: str, save: Callable[[], None]) -> None:
        self._tables[name] = SavedTable(name, save)

    def save_changed(self) -> asyncio.Future[bool]:
        """Write all that changed; done as `saved` is."""
        for table in self._tables.values():
            if table.changed:
                self._write_in(table, 0)
        return self.saved()

    def schedule(self, name: str) -> None:
        """The table changed; its file follows shortly, also if it could not be written before."""
        self.changed(name)
        table = self._tables[name]
        if table.failing and table.timer is not None:
            table.timer.cancel()
            table.timer = None
        self._write_in(table, SAVE_DELAY_S)

    def retry_failed(self) -> None:
        """Try those soon that could not be written."""
        for table in self._tables.values():
            if table.failing:
                self.schedule(table.name)

    def changed(self, name: str) -> None:
        """The table changed; its file follows at stop, or with the next `schedule`."""
        self._tables[name].changes += 1

    @property
    def failing(self) -> bool:
        """Whether the file of a table could not be written."""
        return any(table.failing for table in self._tables.values())

    @property
    def busy(self) -> bool:
        """Whether something that was to be written soon is not yet in its file."""
        return any(table.busy for table in self._tables.values())

    def saved(self) -> asyncio.Future[bool]:
        """Done when what is to be written soon now was written, or could not be (False; the log says why); what
        changes later is not waited for. Those who ask are told in the order in which they asked.
        """
        future: asyncio.Future[bool] = self._loop.create_future()
        goals = {name: table.changes for name, table in self._tables.items() if table.busy}
        self._waiting.append((future, goals))
        self._finish_waiters()
        return future

    def run_in_writer(self, work: Callable[[], None]) -> None:
        """Do it in the writing thread; not at all once that has stopped. `work` raises nothing."""
        if not self._stopped:
            self._writer.submit(work)

    def stop(self) -> None:
        """Write what changed and return when all files are there. OSError of the last one that could not be written;
        the others are."""
        self._stopped = True
        for table in self._tables.values():
            if table.timer is not None:
                table.timer.cancel()
        self._writer.shutdown(wait=True)
        failed: OSError | None = None
        for table in self._tables.values():
            if table.changed:
                try:
                    table.save()
                except OSError as error:
                    log.error("cannot write the %s file: %s", table.name, error)
                    failed = error
                else:
                    table.written = table.changes
        if failed is not None:
            raise failed

    def _write_in(self, table: SavedTable, seconds: float) -> None:
        if table.timer is None and not self._stopped:
            table.timer = self._loop.call_later(seconds, self._write, table)

    def _write(self, table: SavedTable) -> None:
        if table.timer is not None:
            table.timer.cancel()
            table.timer = None
        if self._stopped:
            return
        table.writing += 1
        begun = table.changes
        done = self._loop.run_in_executor(self._writer, table.save)
        done.add_done_callback(lambda future: self._done(table, begun, future.exception()))

    def _done(self, table: SavedTable, begun: int, error: BaseException | None) -> None:
        table.writing -= 1
        table.tried = begun
        if error is None:
            table.written = begun
        else:
            if not table.failing:
                log.error("cannot write the %s file, will try again: %s", table.name, error)
            self._write_in(table, RETRY_S)
        table.failing = error is not None
        self._finish_waiters()

    def _finish_waiters(self) -> None:
        """Those at the head whose changes were tried."""
        while self._waiting and all(
            self._tables[name].tried >= goal for name, goal in self._waiting[0][1].items()
        ):
            future, goals = self._waiting.popleft()
            if not future.done():
                future.set_result(all(self._tables[name].written >= goal for name, goal in goals.items()))
