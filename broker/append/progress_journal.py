"""Journal: progress that survives a kill, in files mapped into memory beside Apache's own (`journal/<run>.<number>`).

An entry is noted BEFORE the record it speaks of is written, with `end`, the log's offset behind that record: at start
it counts only if the log reaches so far. A note is a copy into a shared mapping, no system call: the kernel keeps it
when the process dies; `sync` brings it to the disk. Files are zeroed before use, so that a full disk is an error when
one begins, never a fault of memory. Loop thread; `sync` and `drop_before` may run in another one, and a full file waits
for the next `sync`: the loop does not wait for the disk.

A start packs what counts into one file, each step once: kills in quick succession do not add up, and what is restored
need not be noted again. On a disk that takes no new file a full one is packed into the spare file that is kept for
that, and is the spare one then.

Layout, big-endian: an entry is crc32 u32 (of all that follows), kind u8, length of the name u16, number i32, value i64,
end i64, name. A file ends at the first entry that is not whole.
"""

import contextlib
import errno
import logging
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from firearrow._native.store.files.directory_sync import fsync_dir, make_dirs
from firearrow._native.store.log.journal_page import JournalPage

log = logging.getLogger("firearrow.journal")

HEAD = struct.Struct(">IBHiqq")
FILE_BYTES = 1 << 20
HEAD_BYTES = HEAD.size
CANCEL_BYTES = HEAD_BYTES
"""Kept free at a file's end: a disk that is full must not keep us from voiding what was noted for it."""
NAME_BYTES_MAX = 600
OLDER_KEPT = 16
"""Full files that may wait to be synced; with one more all are synced at once."""
IN_DOUBT = "the journal cannot be flushed, a power cut may take progress back: %s"
DRAFT, SPARE = "packing", "spare"
PACKED_BYTES_MAX = FILE_BYTES * 3 // 4
"""A file that stays fuller when it is packed is not: it would be full again at once."""


class Kind(IntEnum):
    CANCEL = 1
    OFFSET = 2
    DELAY = 3
    TIMER = 4
    DECIDED = 5
    REVIVE = 6


CANCEL = Kind.CANCEL  # looked up for each note, which takes longer in an enum
SINGLE = frozenset({Kind.TIMER, Kind.DECIDED})
"""Each value stands for itself; of the other kinds a later value takes the place of an earlier one."""


class Entry(NamedTuple):
    """What `name`, `number` and `value` mean is the kind's business."""

    kind: int
    name: str
    number: int
    value: int
    end: int


class Journal:
    """`end` is where the recovered log ends: entries of records that it lacks are void. `run` names the store's run:
    files of other runs are stale, Apache's broker has gone on since, or all was saved.

    `journal_page` is the file that is written, for who notes natively: offsets, which count whatever the log holds. What finds
    no room there is for `note`."""

    def __init__(self, folder: str | os.PathLike[str], run: str, end: int) -> None:
        self._folder = Path(folder)
        self._run = run
        make_dirs(str(self._folder))
        for stale in self._folder.iterdir():
            if not stale.name.startswith(f"{run}."):
                stale.unlink()
        self._numbers = sorted(int(path.suffix[1:]) for path in self._folder.iterdir())
        self._gone = False
        self._lock = threading.Lock()  # of the file that is written; held for moments
        self._on_disk = threading.Lock()  # of syncs and names; taken before the other one
        self._entries = packed(self._counting(end))
        self._pack()
        self._map: mmap.mmap | None = None
        self._fd = -1
        self.journal_page = JournalPage()
        self._synced = self._promised = 0
        self._older: list[int] = []
        self._owed = False
        self._spare: tuple[int, mmap.mmap] | None = None
        self._full = False
        self._named = False
        self._doubt: OSError | None = None
        self._begin()
        self._uncancelled = True
        self.cancel(end)
        with contextlib.suppress(OSError):  # the next sync says so
            self.sync()

    def recover_entries(self) -> list[Entry]:
        """What counted at start, in the order in which it was noted; once."""
        entries, self._entries = self._entries, []
        return entries

    def note(self, kind: Kind, name: str, number: int, value: int, end: int = 0) -> None:
        """Remember; `end` 0 counts whatever the log holds. On a full disk an entry can be lost, which the log tells:
        a kill may then repeat what it spoke of."""
        text = name.encode("utf-8", "replace")
        if len(text) > NAME_BYTES_MAX:
            raise ValueError(f"a name of {len(text)} bytes, at most {NAME_BYTES_MAX}")
        kept = 0 if kind is CANCEL else CANCEL_BYTES
        assert self._map is not None
        while not self.journal_page.put(kind, text, number, value, end, kept):
            if not self._has_begun():
                return
        if end:
            self._promised, self._uncancelled = self.journal_page.at, True

    def cancel(self, written: int) -> None:
        """The log did not take the records behind `written`: entries noted for them are void. Always finds room."""
        if self._uncancelled:
            self.note(Kind.CANCEL, "", 0, written)
            self._uncancelled = False

    @property
    def has_promises(self) -> bool:
        """Entries that must be on the disk before the records they speak of (SYNC_FLUSH)."""
        return self._owed or self._promised > self._synced

    def sync(self) -> None:
        """Bring what was noted before the call to the disk, older files first. OSError: it is in doubt, and so is the
        file until another one begins; the kernel would call the next sync good."""
        with self._on_disk:
            self._sync_older()
            with self._lock:
                if self._doubt is not None:
                    raise OSError(self._doubt.errno, self._doubt.strerror)
                fd, at = self._fd, self.journal_page.at
                changed = at != self._synced
            if changed and fd >= 0:
                self._sync_to(fd, at)
            if self._named or self._gone:
                self._named = False  # one that begins from here on is for the next sync
                try:
                    fsync_dir(str(self._folder))
                except OSError:
                    self._named = True
                    raise
                self._gone = False

    def _sync_to(self, fd: int, at: int) -> None:
        """A file that is an older one by now is synced again, for what came meanwhile."""
        try:
            os.fdatasync(fd)
        except OSError as error:
            log.error(IN_DOUBT, error)
            with self._lock:
                self._doubt = error if fd == self._fd else self._doubt
            raise
        with self._lock:
            self._synced = at if fd == self._fd else self._synced

    def _sync_older(self) -> None:
        with self._lock:
            older, self._older = self._older, []
        failed: OSError | None = None
        for fd in older:
            try:
                os.fdatasync(fd)
            except OSError as error:
                log.error(IN_DOUBT, error)
                failed = error
            os.close(fd)
        if failed is not None:
            raise failed
        with self._lock:  # not before: who asks for promises meanwhile has to wait for these
            self._owed = self._owed and bool(self._older)

    def rotate(self) -> int:
        """Begin a new file if this one holds anything; its number. Once all that was noted before is in files of
        its own, `drop_before(number)`. OSError."""
        if self.journal_page.at > HEAD_BYTES:
            self._begin()
        return self._numbers[-1]

    def drop_before(self, number: int) -> None:
        """OSError."""
        with self._on_disk:
            for old in [each for each in self._numbers if each < number]:
                if self._gone:  # an older file that came back alone would speak of old progress
                    fsync_dir(str(self._folder))
                self._path(old).unlink(missing_ok=True)
                self._numbers.remove(old)
                self._gone = True

    def close(self) -> None:
        with self._on_disk, self._lock:
            if self._map is not None:
                self.journal_page.release_page()
                self._map.close()
                self._older.append(self._fd)
                self._map, self._fd = None, -1
            for fd in self._older:
                os.close(fd)
            self._older.clear()
        if self._spare is not None:
            fd, mapped = self._spare
            mapped.close()
            os.close(fd)
            self._spare = None

    def _pack(self) -> None:
        """One file in place of all that there are. It is there, whole, before they go; on a full disk they stay."""
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
            log.warning("the journal stays in %d files: %s", len(self._numbers), error)
            draft.unlink(missing_ok=True)
            return
        self._numbers.append(number)
        self.drop_before(number)
        fsync_dir(str(self._folder))  # what is void there must not come back when the log has grown past it

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._run}.{number:010d}"

    def _begin(self) -> None:
        number = self._numbers[-1] + 1 if self._numbers else 0
        fd, mapped = _zeros(self._path(number))
        if len(self._older) >= OLDER_KEPT:
            with contextlib.suppress(OSError):  # it has said so
                self.sync()
        with self._lock:
            before, self._map = self._map, mapped
            self.journal_page.open(mapped, 0)
            if before is not None:
                before.close()
                self._older.append(self._fd)
            self._owed |= self._promised > self._synced
            self._doubt, self._named = None, True
            self._fd, self._synced, self._promised = fd, 0, 0
        self._numbers.append(number)
        if self._spare is None:
            with contextlib.suppress(OSError):  # the next file tries again
                self._spare = _zeros(self._folder / SPARE)

    def _has_begun(self) -> bool:
        """A new file if there is room for one, else this one packed."""
        try:
            self._begin()
        except OSError as error:
            if self._has_packed():
                return True
            if not self._full:
                log.error("the journal finds no room, what a kill may repeat grows: %s", error)
            self._full = True
            return False
        self._full = False
        return True

    def _has_packed(self) -> bool:
        """The full file's steps, each once, into the spare one. It is on the disk under its name before the full one is
        made the spare one: at any moment one of them holds all."""
        with self._on_disk:
            return self._pack_full()

    def _pack_full(self) -> bool:
        assert self._map is not None
        data = repacked(entries_of(self._map[: self.journal_page.at]))
        if self._spare is None or len(data) > PACKED_BYTES_MAX:
            return False
        (fd, mapped), number = self._spare, self._numbers[-1] + 1
        mapped[:] = data.ljust(FILE_BYTES, b"\0")
        try:
            os.fdatasync(fd)
            (self._folder / SPARE).replace(self._path(number))
        except OSError as error:
            log.error("the journal cannot be packed: %s", error)
            return False
        with self._lock:
            full = self._fd, self._map
            self._map, self._fd, self._doubt, self._named = mapped, fd, None, True
            self.journal_page.open(mapped, len(data))
            self._synced = self._promised = len(data)
            self._numbers.append(number)
            self._spare = None
        self._spare = self._emptied(*full)
        return True

    def _emptied(self, fd: int, mapped: mmap.mmap) -> tuple[int, mmap.mmap] | None:
        """The file before the newest, as the spare one; None if the newest is not there for good: then it stays."""
        try:
            fsync_dir(str(self._folder))
            mapped[:] = bytes(FILE_BYTES)
            self._path(self._numbers[-2]).replace(self._folder / SPARE)
        except OSError as error:
            log.error("the journal has no spare file any more: %s", error)
            mapped.close()
            os.close(fd)
            return None
        del self._numbers[-2]
        return fd, mapped

    def _counting(self, end: int) -> list[Entry]:
        counting: list[Entry] = []
        for number in self._numbers:
            for entry in entries_of(self._path(number).read_bytes()):
                if entry.kind == Kind.CANCEL:
                    counting = [each for each in counting if each.end <= entry.value]
                else:
                    counting.append(entry)
        return [each for each in counting if each.end <= end]


def packed(entries: list[Entry]) -> list[Entry]:
    """Those that a later one does not make void, in their order."""
    last: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        key = (entry.kind, entry.name, entry.number, entry.value if entry.kind in SINGLE else None)
        last.pop(key, None)
        last[key] = entry
    return list(last.values())


def repacked(entries: Iterator[Entry]) -> bytes:
    """What a file says in the fewest bytes: what it makes void, in it and in those before it, comes first."""
    counting: list[Entry] = []
    written: list[int] = []
    for entry in entries:
        if entry.kind == Kind.CANCEL:
            written.append(entry.value)
            counting = [each for each in counting if each.end <= entry.value]
        else:
            counting.append(entry)
    first = [Entry(Kind.CANCEL, "", 0, min(written), 0)] if written else []
    return b"".join(
        _encoded(each.kind, each.name.encode(), each.number, each.value, each.end)
        for each in (*first, *packed(counting))
    )


def _zeros(path: Path) -> tuple[int, mmap.mmap]:
    """A new file, all of it on blocks of its own. OSError: there is none."""
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
    entry, notes = bytearray(HEAD_BYTES + len(text)), JournalPage()
    notes.open(entry, 0)
    notes.put(kind, text, number, value, end)
    return entry


def entries_of(data: bytes) -> Iterator[Entry]:
    """The entries of a file, up to the first that is not whole."""
    at = 0
    while at + HEAD_BYTES <= len(data):
        crc, kind, length, number, value, end = HEAD.unpack_from(data, at)
        stop = at + HEAD_BYTES + length
        if kind == 0 or stop > len(data) or zlib.crc32(data[at + 4 : stop]) != crc:
            return
        yield Entry(kind, data[at + HEAD_BYTES : stop].decode("utf-8", "replace"), number, value, end)
        at = stop
