"""Journal: progress that survives a kill, in memory-mapped files `journal/<run>.<number>` next to Apache's.

An entry is noted BEFORE the record that it describes is written, with `end`, the log's offset after that
record: at start it is valid only if the log reaches `end`. A note is a copy into a shared mapping, without a
system call: the kernel keeps it when the process dies; `sync` makes it durable. Files are zeroed before use,
so that a full disk is an error when a file is created, never a SIGBUS. Loop thread; `sync` and `drop_before`
may run in another thread. Full files are synced by the next `sync`, so the loop does not wait for the disk.

At start the valid entries are compacted into one file: repeated kills do not add up, and restored progress
need not be noted again. Without disk space for a file, a start continues the newest one. If later there is no
space for a new file, the full one is compacted into the spare file that is kept for this case, and becomes
the spare file itself.
"""

import contextlib
import errno
import logging
import mmap
import os
import threading
from collections.abc import Callable, Collection, Iterator
from enum import IntEnum
from pathlib import Path

from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.log.journal_entries import HEAD, SPARE, Entry, entries_of
from firearrow._native.store.log.journal_page import JournalPage

log = logging.getLogger("firearrow.journal")

FILE_BYTES = 1 << 20
HEAD_BYTES = HEAD.size
OFFSET_MAX = (1 << 62) - 1
CANCEL_BYTES = HEAD_BYTES
"""Reserved at a file's end, so that entries can be cancelled even if the disk is full."""
NAME_BYTES_MAX = 600
FULL_FILES_MAX = 16
"""Most full files waiting for a sync; above it, the loop thread syncs them all."""
SYNC_FAILED = "the journal cannot be flushed, a power cut may lose progress: %s"
DRAFT = "packing"
COMPACTED_BYTES_MAX = FILE_BYTES * 3 // 4
"""A file that would be larger when compacted is not compacted: it would be full again at once."""


class Kind(IntEnum):
    CANCEL = 1
    OFFSET = 2
    DELAY = 3
    TIMER = 4
    DECIDED = 5
    REVIVE = 6


CANCEL = Kind.CANCEL  # a module constant: faster than an enum look-up for each note
SINGLE = frozenset({Kind.TIMER, Kind.DECIDED})
"""Each value counts; of the other kinds a later value replaces an earlier one."""


class Journal:
    """`end` is the end of the recovered log: entries of records after it are void. `run` identifies the
    store's run: files of other runs are stale, since Apache's broker ran in between or everything was saved.

    `journal_page` is the current file, for compiled code that notes offsets, which are valid whatever the log
    contains. What does not fit there has to go through `note`."""

    def __init__(self, folder: str | os.PathLike[str], run: str, end: int) -> None:
        self._folder = Path(folder)
        self._run = run
        make_dirs(str(self._folder))
        for stale in self._folder.iterdir():
            if not stale.name.startswith(f"{run}."):
                stale.unlink()
        self._numbers = sorted(int(path.suffix[1:]) for path in self._folder.iterdir())
        self._dir_unsynced = False
        self._lock = threading.Lock()  # guards the current file; held briefly
        self._sync_lock = threading.Lock()  # guards syncs and names; taken before `_lock`
        self._entries = compacted(self._valid_entries(end))
        self._compact_files()
        self._map: mmap.mmap | None = None
        self._fd = -1
        self.journal_page = JournalPage()
        self._synced = self._linked = 0
        self._full_fds: list[int] = []
        self._full_linked = False
        self._spare: tuple[int, mmap.mmap] | None = None
        self._full = False
        self._created = False
        self._sync_error: OSError | None = None
        self._undrained: list[bytes] | None = None
        self._send: Callable[[], None] = lambda: None
        self._drained = 0
        try:
            self._start_file()
        except OSError:
            if not self._continue_file():
                raise
        self._uncancelled = True
        self.cancel(end)
        with contextlib.suppress(OSError):  # the next sync raises it again
            self.sync()

    def recover_entries(self) -> list[Entry]:
        """The valid entries at start, in the order of their notes; empty at the second call."""
        entries, self._entries = self._entries, []
        return entries

    def note(self, kind: Kind, name: str, number: int, value: int, end: int = 0) -> None:
        """Note an entry; with `end` 0 it is valid whatever the log contains. On a full disk an entry can be
        lost (logged): a kill may then repeat the work that it describes."""
        text = name.encode("utf-8", "replace")
        if len(text) > NAME_BYTES_MAX:
            raise ValueError(f"a name of {len(text)} bytes, at most {NAME_BYTES_MAX}")
        reserved = 0 if kind is CANCEL else CANCEL_BYTES
        assert self._map is not None
        while not self.journal_page.put(kind, text, number, value, end, reserved):
            if not self._make_space():
                return
        if end:
            self._linked, self._uncancelled = self.journal_page.at, True

    def cancel(self, written: int) -> None:
        """The log did not store the records after `written`: their entries are void. Always has space."""
        if self._uncancelled:
            self.note(Kind.CANCEL, "", 0, written)
            self._uncancelled = False

    @property
    def has_promises(self) -> bool:
        """Whether entries must be synced before the records that they describe (SYNC_FLUSH)."""
        return self._full_linked or self._linked > self._synced

    def sync(self) -> None:
        """Make the entries noted before the call durable, full files first. OSError: they may be lost; every
        further sync of this file fails as well, because the kernel would report success for it."""
        with self._sync_lock:
            self._sync_full_files()
            with self._lock:
                if self._sync_error is not None:
                    raise OSError(self._sync_error.errno, self._sync_error.strerror)
                fd, at = self._fd, self.journal_page.at
                changed = at != self._synced
            if changed and fd >= 0:
                self._sync_to(fd, at)
            if self._created or self._dir_unsynced:
                self._created = False  # a file created from here on is for the next sync
                try:
                    fsync_dir(str(self._folder))
                except OSError:
                    self._created = True
                    raise
                self._dir_unsynced = False

    def _sync_to(self, fd: int, at: int) -> None:
        """A file that became full during the sync is synced again, for its later entries."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            log.error(SYNC_FAILED, error)
            with self._lock:
                self._sync_error = error if fd == self._fd else self._sync_error
            raise
        with self._lock:
            self._synced = at if fd == self._fd else self._synced

    def _sync_full_files(self) -> None:
        with self._lock:
            full, self._full_fds = self._full_fds, []
        failed: OSError | None = None
        for fd in full:
            try:
                os.fdatasync(fd)
            except OSError as error:
                log.error(SYNC_FAILED, error)
                failed = error
            os.close(fd)
        if failed is not None:
            raise failed
        with self._lock:  # only now: until here `has_promises` has to include these files
            self._full_linked = self._full_linked and bool(self._full_fds)

    def rotate(self) -> int:
        """Start a new file if this one has entries; returns its number. Once all earlier progress is in
        Apache's files, call `drop_before(number)`. OSError."""
        if self.journal_page.at > HEAD_BYTES:
            self._start_file()
        return self._numbers[-1]

    def drop_before(self, number: int) -> None:
        """Delete the files with smaller numbers. OSError."""
        with self._sync_lock:
            for old in [each for each in self._numbers[:] if each < number]:
                if self._dir_unsynced:  # an older file must not survive a power cut alone
                    fsync_dir(str(self._folder))
                self._path(old).unlink(missing_ok=True)
                self._numbers.remove(old)
                self._dir_unsynced = True

    # ---- for slaves ----

    def start_draining(self, send: Callable[[], None] = lambda: None) -> None:
        """From now on, `drain` returns what is noted, and has to be called often: it is kept until then. `send()`
        drains, and sends it to slaves."""
        self._undrained, self._drained, self._send = [], self.journal_page.at, send

    def stop_draining(self) -> None:
        self._undrained, self._send = None, lambda: None

    def send_notes(self) -> None:
        """Send slaves what is noted, now and not with the next write: it is to be answered."""
        self._send()

    def valid_entries(self, kinds: Collection[int]) -> list[Entry]:
        """Those of these kinds that are noted and not dropped, in order: what a new slave has missed. Reads the files;
        OSError."""
        return compacted([each for each in self._valid_entries(OFFSET_MAX) if each.kind in kinds])

    def drain(self) -> list[bytes]:
        """All entries noted since the last call, cancellations too, in order: pieces of whole entries, each at most
        a file. Called after a write, it returns the entries of all records that are written."""
        if self._undrained is None:
            return []
        self._keep_undrained()
        pieces, self._undrained = self._undrained, []
        return pieces

    def _keep_undrained(self) -> None:
        """Copy what is noted in the current file and not drained yet; called before another one takes its place."""
        if self._undrained is None or self._map is None:
            return
        if self.journal_page.at > self._drained:
            self._undrained.append(self._map[self._drained : self.journal_page.at])
        self._drained = self.journal_page.at

    def close(self) -> None:
        with self._sync_lock, self._lock:
            if self._map is not None:
                self.journal_page.release_page()
                self._map.close()
                self._full_fds.append(self._fd)
                self._map, self._fd = None, -1
            for fd in self._full_fds:
                os.close(fd)
            self._full_fds.clear()
        if self._spare is not None:
            fd, mapped = self._spare
            mapped.close()
            os.close(fd)
            self._spare = None

    def _compact_files(self) -> None:
        """Compact all files into one, which is durable before they are deleted; on a full disk they stay."""
        if not self._numbers:
            return
        number, draft = self._numbers[-1] + 1, self._folder / DRAFT
        entries = (_encoded(e.kind, e.name.encode(), e.number, e.value, e.end) for e in self._entries)
        try:
            with draft.open("wb") as file:
                file.write(b"".join(entries))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path(number))
            fsync_dir(str(self._folder))
        except OSError as error:
            log.info(
                "the journal could not be compacted and stays in %d files: %s", len(self._numbers), error
            )
            draft.unlink(missing_ok=True)
            return
        self._numbers.append(number)
        self.drop_before(number)
        # void entries must not come back after the log has grown past their `end`
        fsync_dir(str(self._folder))

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._run}.{number:010d}"

    def _start_file(self) -> None:
        """Create a new current file. OSError."""
        number = self._numbers[-1] + 1 if self._numbers else 0
        fd, mapped = _create_zeroed(self._path(number))
        if len(self._full_fds) >= FULL_FILES_MAX:
            with contextlib.suppress(OSError):  # `sync` has logged it
                self.sync()
        with self._lock:
            self._keep_undrained()
            full_map, self._map = self._map, mapped
            self.journal_page.open(mapped, 0)
            self._drained = 0
            if full_map is not None:
                full_map.close()
                self._full_fds.append(self._fd)
            self._full_linked |= self._linked > self._synced
            self._sync_error, self._created = None, True
            self._fd, self._synced, self._linked = fd, 0, 0
        self._numbers.append(number)
        if self._spare is None:
            with contextlib.suppress(OSError):  # the next file tries again
                self._spare = _create_zeroed(self._folder / SPARE)

    def _continue_file(self) -> bool:
        """At start, on a disk without space for a new file: append to the newest one. False if it has no
        space for entries, either."""
        if not self._numbers or self._path(self._numbers[-1]).stat().st_size != FILE_BYTES:
            return False
        fd = os.open(self._path(self._numbers[-1]), os.O_RDWR)
        data = os.pread(fd, FILE_BYTES, 0)
        at = sum(HEAD_BYTES + len(entry.name.encode("utf-8", "replace")) for entry in entries_of(data))
        try:
            if at + CANCEL_BYTES > FILE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.pwrite(
                fd, bytes(FILE_BYTES - at), at
            )  # an incomplete entry; and no hole is written through a map
            self._map = mmap.mmap(fd, FILE_BYTES)
        except OSError:
            os.close(fd)
            return False
        self._fd, self._created = fd, True
        self.journal_page.open(self._map, at)
        return True

    def _make_space(self) -> bool:
        """Start a new file if the disk has space for one, else compact this one. False if neither works."""
        try:
            self._start_file()
        except OSError as error:
            if self._compact_current():
                return True
            if not self._full:
                log.error("no space for the journal: a kill may repeat more and more work: %s", error)
            self._full = True
            return False
        self._full = False
        return True

    def _compact_current(self) -> bool:
        """Compact the full file into the spare one, which is on disk under its name before the full one
        becomes the spare: at any time one of them has all entries. False if it is not possible."""
        with self._sync_lock:
            return self._compact_locked()

    def _compact_locked(self) -> bool:
        assert self._map is not None
        data = compacted_file(entries_of(self._map[: self.journal_page.at]))
        if self._spare is None or len(data) > COMPACTED_BYTES_MAX:
            return False
        (fd, mapped), number = self._spare, self._numbers[-1] + 1
        mapped[:] = data.ljust(FILE_BYTES, b"\0")
        try:
            os.fdatasync(fd)
            (self._folder / SPARE).replace(self._path(number))
        except OSError as error:
            log.error("the journal cannot be compacted: %s", error)
            return False
        with self._lock:
            full = self._fd, self._map
            self._keep_undrained()
            self._map, self._fd, self._sync_error, self._created = mapped, fd, None, True
            self.journal_page.open(mapped, len(data))
            self._drained = len(data)
            self._synced = self._linked = len(data)
            self._numbers.append(number)
            self._spare = None
        self._spare = self._make_spare(*full)
        return True

    def _make_spare(self, fd: int, mapped: mmap.mmap) -> tuple[int, mmap.mmap] | None:
        """Turn the file before the newest into the spare one; None if the newest cannot be made durable."""
        try:
            fsync_dir(str(self._folder))
            mapped[:] = bytes(FILE_BYTES)
            self._path(self._numbers[-2]).replace(self._folder / SPARE)
        except OSError as error:
            log.error("the journal has no spare file now: %s", error)
            mapped.close()
            os.close(fd)
            return None
        del self._numbers[-2]
        return fd, mapped

    def _valid_entries(self, end: int) -> list[Entry]:
        """The entries of all files that are neither cancelled nor after the log's `end`."""
        valid: list[Entry] = []
        for number in self._numbers[:]:
            try:
                data = self._path(number).read_bytes()
            except FileNotFoundError:  # dropped by the other thread: its progress is in Apache's files
                continue
            for entry in entries_of(data):
                if entry.kind == Kind.CANCEL:
                    valid = [each for each in valid if each.end <= entry.value]
                else:
                    valid.append(entry)
        return [each for each in valid if each.end <= end]


def compacted(entries: list[Entry]) -> list[Entry]:
    """The entries that no later one replaces, in order."""
    last: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        key = (entry.kind, entry.name, entry.number, entry.value if entry.kind in SINGLE else None)
        last.pop(key, None)
        last[key] = entry
    return list(last.values())


def compacted_file(entries: Iterator[Entry]) -> bytes:
    """A file's entries in the fewest bytes; one CANCEL entry comes first, which also acts on earlier
    files."""
    valid: list[Entry] = []
    cancelled: list[int] = []
    for entry in entries:
        if entry.kind == Kind.CANCEL:
            cancelled.append(entry.value)
            valid = [each for each in valid if each.end <= entry.value]
        else:
            valid.append(entry)
    first = [Entry(Kind.CANCEL, "", 0, min(cancelled), 0)] if cancelled else []
    return b"".join(
        _encoded(each.kind, each.name.encode(), each.number, each.value, each.end)
        for each in (*first, *compacted(valid))
    )


def _create_zeroed(path: Path) -> tuple[int, mmap.mmap]:
    """Create a file with all blocks allocated, and map it. OSError: none was created."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        if os.write(fd, bytes(FILE_BYTES)) != FILE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return fd, mmap.mmap(fd, FILE_BYTES)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise


def _encoded(kind: int, text: bytes, number: int, value: int, end: int) -> bytearray:
    entry, page = bytearray(HEAD_BYTES + len(text)), JournalPage()
    page.open(entry, 0)
    page.put(kind, text, number, value, end)
    return entry


def encoded(entry: Entry) -> bytes:
    """The bytes of an entry in a file."""
    return bytes(_encoded(entry.kind, entry.name.encode(), entry.number, entry.value, entry.end))
