"""TableSaver: loads tables from their files, and writes them in the background, not more often than needed.

`schedule` writes a table after a short delay, so that a thousand changes need one write; `saved` waits for
it. `changed` only notes a change, which is written at stop or with the next `schedule` or `save_changed`.

Of each table at most one save runs and one waits. Periodic tables, the large ones, have a thread of their own, so
that answers to changes of topics and groups never wait for them. These threads make the text and write it; all else
runs in the loop thread.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from firearrow.broker.base.errors import StartError
from firearrow.broker.base.process import ServiceThread
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.table_saver")

SAVE_DELAY_S = 0.02
RETRY_S = 5.0
SLOW_S = 10.0
"""A save that takes longer is logged."""
LATE_S = 60.0
"""A change that was not written for so long breaks what its answer promises."""
PIECE_PAUSE_S = 0.0002
"""After each piece of a text, so that the loop gets the GIL: it would wait for 5 ms else."""


class ConfigTable(Protocol):
    """A table that a config file stores."""

    def to_json(self) -> bytes: ...
    def load(self, text: bytes) -> None: ...


class SaveState(NamedTuple):
    """How the saves of a table go. `late_s`: the age of the oldest change that should have been written; `last_s`: the
    length of the last save; `failures`: all; `error`: of the last save, empty if it was written."""

    table: str
    late_s: float
    last_s: float
    failures: int
    error: str


@dataclass(slots=True)
class SavedTable:
    """`save()` writes the table's file, in `thread`."""

    name: str
    save: Callable[[], None]
    thread: ServiceThread
    changes: int = 0
    """Numbers of changes: all; `wanted`: that are to be written now; `tried`: that a write covered, failed or not;
    `written`: that are in the file."""
    wanted: int = 0
    tried: int = 0
    written: int = 0
    covers: int = 0
    """The changes that the save covers that runs or waits for the thread; only while there is one."""
    saving: Future[float] | None = None
    timer: asyncio.TimerHandle | None = None
    began: float = 0.0
    """Loop time at which the save was given to the thread."""
    due: float | None = None
    """Loop time since which a change is to be written."""
    last_s: float = 0.0
    failures: int = 0
    error: str = ""

    @property
    def changed(self) -> bool:
        return self.changes != self.written

    @property
    def failing(self) -> bool:
        return self.error != ""

    @property
    def busy(self) -> bool:
        """A write is scheduled or running. One that failed is over, although it will be repeated."""
        return self.tried < self.wanted

    def timed_save(self) -> float:
        """The seconds that the save took. In the thread."""
        began = time.monotonic()
        self.save()
        return time.monotonic() - began


class TableSaver:
    """`sync_to_disk()` syncs log and journal before a progress file is written: the file must not be ahead of the
    log, and older progress in the journal must not override it after a restart. OSError."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sync_to_disk: Callable[[], None] = lambda: None
    ) -> None:
        self.sync_to_disk = sync_to_disk
        self._loop = loop
        self._tables: dict[str, SavedTable] = {}
        self._waiters: deque[tuple[asyncio.Future[bool], dict[str, int]]] = deque()
        self._periodic_waiters: deque[tuple[asyncio.Future[bool], dict[str, int]]] = deque()
        self._thread = ServiceThread("saver")
        self._periodic_thread = ServiceThread("periodic-saver")
        self._stopped = False

    @property
    def threads(self) -> list[ServiceThread]:
        return [self._thread, self._periodic_thread]

    def add(self, name: str, save: Callable[[], None], *, periodic: bool = False) -> None:
        """`periodic`: only `save_changed` and `stop` write it, and `saved` does not wait for that."""
        self._tables[name] = SavedTable(name, save, self._periodic_thread if periodic else self._thread)

    def load(
        self,
        name: str,
        file: ConfigFile,
        table: ConfigTable,
        *,
        make: bool = True,
        progress: bool = False,
        periodic: bool = False,
        pieces: Callable[[], Iterator[bytes]] | None = None,
    ) -> bool:
        """Load the table from its file and add it under `name`. False if nothing was loaded, or an older state than
        the last one written.

        `make`: write the file at once if there was nothing to load. `progress`: the file states how far the log
        was processed, so log and journal are synced before it is written. `pieces()`: the text in small pieces,
        instead of `to_json`. StartError.
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
            text = [table.to_json()] if pieces is None else _collected(pieces())
            if progress:
                self.sync_to_disk()
            file.write(*text)

        self.add(name, save, periodic=periodic)
        return loaded and not file.is_older

    def save_changed(self) -> asyncio.Future[bool]:
        """Write all tables that changed. The future is done when that was tried; False if one failed (logged)."""
        for table in self._tables.values():
            if table.changed:
                self._want(table, 0)
        return self._wait(self._periodic_waiters, list(self._tables.values()))

    def schedule(self, name: str) -> None:
        """The table changed: write its file shortly, also if the last write failed."""
        self.changed(name)
        table = self._tables[name]
        if table.failing and table.timer is not None:
            table.timer.cancel()
            table.timer = None
        self._want(table, SAVE_DELAY_S)

    def retry_failed(self) -> None:
        """Schedule the tables whose last write failed, but periodic ones."""
        for table in self._prompt_tables():
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
        """Whether a scheduled change is not in its file yet; of tables that are not periodic."""
        return any(table.busy for table in self._prompt_tables())

    def saved(self) -> asyncio.Future[bool]:
        """A future that is done when all writes scheduled by now were tried, but periodic ones; False if one failed
        (logged). It does not wait for later changes. Futures complete in the order of the calls.
        """
        return self._wait(self._waiters, self._prompt_tables())

    def states(self) -> list[SaveState]:
        """How the saves of each table go that was ever changed."""
        now = self._loop.time()
        return [
            SaveState(
                table.name,
                0.0 if table.due is None else now - table.due,
                table.last_s,
                table.failures,
                table.error,
            )
            for table in self._tables.values()
            if table.changes
        ]

    def fault(self) -> str | None:
        """Why what is acknowledged may be lost at a restart; None: it is not."""
        for state in self.states():
            if state.late_s >= LATE_S:
                why = state.error or "the disk is slow, or hangs"
                return f"the {state.table} file was not written for {state.late_s:.0f} s: {why}"
        return None

    def ended(self) -> str | None:
        """Why no change is written before `stop` that an answer would wait for; None: it is."""
        return None if self._thread.is_alive() else "the saver thread has ended: restart the server"

    def finish(self) -> None:
        """A thread has ended: complete what waits for it."""
        self._finish(self._waiters)
        self._finish(self._periodic_waiters)

    def run_in_writer(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread of periodic saves, or not at all after stop. `work` must not raise."""
        if not self._stopped:
            self._periodic_thread.submit(work)

    def stop(self) -> None:
        """Write all changed tables once and return. OSError: the error of the last table that could not be
        written; the others are written."""
        self._stopped = True
        for thread in self.threads:
            thread.shutdown(wait=True, cancel_futures=True)
        failed: OSError | None = None
        for table in self._tables.values():
            if table.timer is not None:
                table.timer.cancel()
            if _succeeded(table.saving):
                table.written = table.covers
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

    def _prompt_tables(self) -> list[SavedTable]:
        return [table for table in self._tables.values() if table.thread is self._thread]

    def _want(self, table: SavedTable, seconds: float) -> None:
        """All changes by now are to be written."""
        table.wanted = table.changes
        table.due = self._loop.time() if table.due is None else table.due
        self._save_in(table, seconds)

    def _save_in(self, table: SavedTable, seconds: float) -> None:
        """Not while a save runs or waits: `_done` continues then."""
        if table.timer is None and table.saving is None and not self._stopped:
            table.timer = self._loop.call_later(seconds, self._save, table)

    def _save(self, table: SavedTable) -> None:
        if table.timer is not None:
            table.timer.cancel()
            table.timer = None
        if self._stopped or table.saving is not None:
            return
        table.covers, table.began = table.changes, self._loop.time()
        table.saving = table.thread.submit(table.timed_save)
        done = asyncio.wrap_future(table.saving, loop=self._loop)
        done.add_done_callback(lambda future: self._done(table, future))

    def _done(self, table: SavedTable, done: asyncio.Future[float]) -> None:
        if self._stopped:
            return
        table.saving = None
        table.tried = table.covers
        error = done.exception()
        if error is None:
            self._written(table, done.result())
        else:
            if not table.failing:
                log.error("cannot write the %s file, will try again: %s", table.name, error)
            table.failures, table.error = table.failures + 1, str(error) or type(error).__name__
        if table.busy:
            self._save_in(table, SAVE_DELAY_S)
        elif error is not None:
            self._save_in(table, RETRY_S)
        self.finish()

    def _written(self, table: SavedTable, seconds: float) -> None:
        if seconds > SLOW_S and table.last_s <= SLOW_S:
            log.warning("the %s file took %.1f s to write: the disk is slow", table.name, seconds)
        table.written, table.last_s, table.error = table.covers, seconds, ""
        table.due = table.began if table.busy else None

    def _wait(
        self, waiters: deque[tuple[asyncio.Future[bool], dict[str, int]]], tables: list[SavedTable]
    ) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = self._loop.create_future()
        waiters.append((future, {table.name: table.wanted for table in tables if table.busy}))
        self._finish(waiters)
        return future

    def _finish(self, waiters: deque[tuple[asyncio.Future[bool], dict[str, int]]]) -> None:
        """Complete the futures at the head whose changes were tried, or never will be."""
        while waiters and all(
            self._is_over(self._tables[name], goal) for name, goal in waiters[0][1].items()
        ):
            future, goals = waiters.popleft()
            if not future.done():
                future.set_result(all(self._tables[name].written >= goal for name, goal in goals.items()))

    @staticmethod
    def _is_over(table: SavedTable, goal: int) -> bool:
        return table.tried >= goal or not table.thread.is_alive()


def _succeeded(saving: Future[float] | None) -> bool:
    """A save whose thread has ended is never done."""
    if saving is None or not saving.done() or saving.cancelled():
        return False
    return saving.exception() is None


def _collected(pieces: Iterator[bytes]) -> list[bytes]:
    """The pieces, each made while other threads wait for no more than that."""
    made: list[bytes] = []
    for piece in pieces:
        made.append(piece)
        time.sleep(PIECE_PAUSE_S)
    return made
