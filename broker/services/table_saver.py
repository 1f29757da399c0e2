"""TableSaver: loads tables from their files, and writes them in the background, not more often than needed.

`schedule` writes a table after a short delay, so that a thousand changes need one write; `saved` waits for
it. `changed` only notes a change, which is written at stop or with the next `schedule` or `save_changed`. The
writer thread takes the snapshot and writes it; all else runs in the loop thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firearrow.broker.base.errors import StartError
from firearrow.broker.base.process import single_thread_executor
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.table_saver")

SAVE_DELAY_S = 0.02
RETRY_S = 5.0


class ConfigTable(Protocol):
    """A table that a config file stores."""

    def to_json(self) -> bytes: ...
    def load(self, text: bytes) -> None: ...


@dataclass(slots=True)
class SavedTable:
    """`save()` writes the table's file; it may run in the writer thread."""

    name: str
    save: Callable[[], None]
    changes: int = 0
    """Numbers of changes: all; `tried`: that a write covered, failed or not; `written`: that are in the
    file."""
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
        """A write is scheduled or running. One that failed is over, although it will be repeated."""
        return (self.timer is not None or self.writing > 0) and self.tried < self.changes


class TableSaver:
    """`sync_to_disk()` syncs log and journal in the writer thread before a progress file is written: the file
    must not be ahead of the log, and older progress in the journal must not override it after a restart.
    OSError."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sync_to_disk: Callable[[], None] = lambda: None
    ) -> None:
        self.sync_to_disk = sync_to_disk
        self._loop = loop
        self._tables: dict[str, SavedTable] = {}
        self._waiters: deque[tuple[asyncio.Future[bool], dict[str, int]]] = deque()
        self._writer = single_thread_executor("saver")
        self._stopped = False

    def add(self, name: str, save: Callable[[], None]) -> None:
        self._tables[name] = SavedTable(name, save)

    def load(
        self, name: str, file: ConfigFile, table: ConfigTable, *, make: bool = True, progress: bool = False
    ) -> bool:
        """Load the table from its file and add it under `name`. False if nothing was loaded, or an older state than
        the last one written.

        `make`: write the file at once if there was nothing to load. `progress`: the file states how far the log
        was processed, so log and journal are synced before it is written. StartError.
        """
        try:
            loaded = file.load(table.load)
            if (make and not loaded) or (loaded and file.is_older):
                file.write(table.to_json())
        except OSError as error:
            raise StartError(
                f"cannot open the store {file.path.parent.parent} ({error.filename or file.path}: "
                f"{error.strerror or error}): "
                "free disk space, set its permissions, or choose another folder with --store"
            ) from None

        def save() -> None:
            text = table.to_json()
            if progress:
                self.sync_to_disk()
            file.write(text)

        self.add(name, save)
        return loaded and not file.is_older

    def save_changed(self) -> asyncio.Future[bool]:
        """Write all tables that changed; the future of `saved`."""
        for table in self._tables.values():
            if table.changed:
                self._write_in(table, 0)
        return self.saved()

    def schedule(self, name: str) -> None:
        """The table changed: write its file shortly, also if the last write failed."""
        self.changed(name)
        table = self._tables[name]
        if table.failing and table.timer is not None:
            table.timer.cancel()
            table.timer = None
        self._write_in(table, SAVE_DELAY_S)

    def retry_failed(self) -> None:
        """Schedule the tables whose last write failed."""
        for table in self._tables.values():
            if table.failing:
                self.schedule(table.name)

    def changed(self, name: str) -> None:
        """The table changed: write its file at stop, or with the next `schedule`."""
        self._tables[name].changes += 1

    def changes(self, name: str) -> int:
        """How often the table has changed."""
        return self._tables[name].changes

    @property
    def failing(self) -> bool:
        """Whether the last write of a table failed."""
        return any(table.failing for table in self._tables.values())

    @property
    def busy(self) -> bool:
        """Whether a scheduled change is not in its file yet."""
        return any(table.busy for table in self._tables.values())

    def saved(self) -> asyncio.Future[bool]:
        """A future that is done when all writes scheduled by now were tried; False if one failed (logged). It
        does not wait for later changes. Futures complete in the order of the calls.
        """
        future: asyncio.Future[bool] = self._loop.create_future()
        goals = {name: table.changes for name, table in self._tables.items() if table.busy}
        self._waiters.append((future, goals))
        self._finish_waiters()
        return future

    def run_in_writer(self, work: Callable[[], None]) -> None:
        """Run `work` in the writer thread, or not at all after stop. `work` must not raise."""
        if not self._stopped:
            self._writer.submit(work)

    def stop(self) -> None:
        """Write all changed tables and return. OSError: the error of the last table that could not be
        written; the others are written."""
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
        covered = table.changes
        done = self._loop.run_in_executor(self._writer, table.save)
        done.add_done_callback(lambda future: self._done(table, covered, future.exception()))

    def _done(self, table: SavedTable, covered: int, error: BaseException | None) -> None:
        table.writing -= 1
        table.tried = covered
        if error is None:
            table.written = covered
        else:
            if not table.failing:
                log.error("cannot write the %s file, will try again: %s", table.name, error)
            self._write_in(table, RETRY_S)
        table.failing = error is not None
        self._finish_waiters()

    def _finish_waiters(self) -> None:
        """Complete the futures at the head whose changes were tried."""
        while self._waiters and all(
            self._tables[name].tried >= goal for name, goal in self._waiters[0][1].items()
        ):
            future, goals = self._waiters.popleft()
            if not future.done():
                future.set_result(all(self._tables[name].written >= goal for name, goal in goals.items()))
