"""CompactionLog: the compacted messages of one queue, in Apache's files (Apache: CompactionLog, SparseConsumeQueue).

    compactionLog/TOPIC/QUEUE/00000000000000000000   records, as in the commit log, but with their offset in these files
    compactionCq/TOPIC/QUEUE/00000000000000000000    an entry of 46 bytes for each record, as of a batch queue

Both have files of the same names. Both are left when the next record does not fit into one of them: an entry of -1 and
a blank end them. Offsets in the queue rise, with gaps. The last file is appended to; the others change only when
compaction replaces them. The entries can be made from the records again.

`replace` is atomic: what compaction has written is complete in folders `cleaned`; once the log's is called `swap`, it
counts, and the next `open` goes on with what a kill has interrupted.

Reads and writes are plain calls on files that are open only meanwhile. The appender's thread, but for what is noted.
"""

import contextlib
import os
import shutil
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from firearrow._native.base.durable_files import fsync_dir, make_dirs, replace_durably
from firearrow._native.base.hash import java_hash
from firearrow._native.store.files.segment_files import file_name, named_files
from firearrow._native.store.log.record import Record, RecordError, decode

ENTRY = struct.Struct(">qiqqqhii")
"""Offset of the record in the log's files, its size, tags code, store time, offset in the queue, 1, -1, 0."""
END_ENTRY = ENTRY.pack(-1, 0, 0, 0, 0, 0, -1, 0)
BLANK = struct.Struct(">ii")
BLANK_MAGIC = -875286124
MAGICS = (-626843481, -626843477)
LOG_FOLDER, QUEUE_FOLDER = "compaction/compactionLog", "compaction/compactionCq"
CLEANED, SWAP = "cleaned", "swap"
REPLACED = "replaced"
"""In `swap`: a line with the names of the new files, and one with those of the files that they replace."""
DELETED = ".delete"
"""Apache renames the files that it replaces."""

AT_QUEUE_OFFSET, AT_PHYSICAL_OFFSET, AT_SYS_FLAG, AT_STORE_TIME = 20, 28, 36, 56
BORN_V6, V6_MORE = 0x10, 12
HEAD = struct.Struct(">iiiiiqqiq")
"""Size, magic, CRC, queue, flag, offset in the queue, offset in the log, system flag, born time."""
SIZE = struct.Struct(">i")
LONG = struct.Struct(">q")
ENTRIES_AT_ONCE = 512


class Entry(NamedTuple):
    """An entry; `at`: where its record begins in the log's files."""

    at: int
    size: int
    tags_code: int
    store_ms: int
    offset: int


class CompactionFile(NamedTuple):
    """A pair of files: `entries` records, of queue offsets `first` to `last` (-1: none), which end at `end`."""

    base: int
    entries: int
    first: int
    last: int
    end: int


class Sizes(NamedTuple):
    """Bytes of each file of the log and of the queue."""

    log: int
    queue: int


def file_sizes(log_bytes: int, queue_bytes: int) -> Sizes:
    """What Apache makes of the two options (CompactionLog.getCompactionLogSize)."""
    queue = max(queue_bytes // ENTRY.size, 2) * ENTRY.size
    times, rest = divmod(log_bytes, queue)
    if times < 5:
        return Sizes(queue * 5, queue)
    return Sizes((times if 0 < rest < queue // 2 else times + 1) * queue, queue)


class FileWriter:
    """Appends records to files in two folders, which it creates."""

    def __init__(self, log_folder: str, queue_folder: str, sizes: Sizes) -> None:
        self.log_folder, self.queue_folder, self.sizes = log_folder, queue_folder, sizes
        self.files: list[CompactionFile] = []
        self.dirty: set[str] = set()
        """Files and folders that are not synced."""

    def append(self, records: Iterable[tuple[memoryview, int]]) -> None:
        """Records as in the commit log, each with its tags code, in the order of their offsets. OSError: none after
        the last one of `files` is there."""
        at, log_bytes, entries, changed = -1, bytearray(), bytearray(), None
        for record, tags_code in records:
            if len(record) + BLANK.size > self.sizes.log:
                continue  # no file has space for it; Apache leaves it out as well
            file = changed or (self.files[-1] if self.files else None)
            if file is None or not self._fits(file, len(record)):
                if changed is not None:
                    self._write(changed, at, log_bytes, entries)
                file, changed = self._roll(file), None
            if changed is None:
                at, log_bytes, entries = file.end, bytearray(), bytearray()
            offset = offset_of(record)
            entries += ENTRY.pack(file.end, len(record), tags_code, store_ms(record), offset, 1, -1, 0)
            log_bytes += record
            LONG.pack_into(log_bytes, file.end - at + AT_PHYSICAL_OFFSET, file.end)
            first = offset if file.first < 0 else file.first
            changed = CompactionFile(file.base, file.entries + 1, first, offset, file.end + len(record))
        if changed is not None:
            self._write(changed, at, log_bytes, entries)

    def _fits(self, file: CompactionFile, size: int) -> bool:
        return (file.entries + 1) * ENTRY.size < self.sizes.queue and (
            file.end + size + BLANK.size <= file.base + self.sizes.log
        )

    def _roll(self, file: CompactionFile | None) -> CompactionFile:
        if file is not None:
            left = file.base + self.sizes.log - file.end
            if left >= BLANK.size:
                self._pwrite(self.log_folder, file.base, file.end - file.base, BLANK.pack(left, BLANK_MAGIC))
            if (file.entries + 1) * ENTRY.size <= self.sizes.queue:
                self._pwrite(self.queue_folder, file.base, file.entries * ENTRY.size, END_ENTRY)
        base = 0 if file is None else file.base + self.sizes.log
        for folder, size in ((self.queue_folder, self.sizes.queue), (self.log_folder, self.sizes.log)):
            make_dirs(folder)
            with open(os.path.join(folder, file_name(base)), "wb") as made:
                made.truncate(size)
            self.dirty.add(folder)
        fresh = CompactionFile(base, 0, -1, -1, base)
        self.files.append(fresh)
        return fresh

    def _write(self, file: CompactionFile, at: int, log_bytes: bytearray, entries: bytearray) -> None:
        """The records first: an entry states that its record is there."""
        first = file.entries * ENTRY.size - len(entries)
        self._pwrite(self.log_folder, file.base, at - file.base, log_bytes)
        self._pwrite(self.queue_folder, file.base, first, entries)
        self.files[-1] = file

    def _pwrite(self, folder: str, base: int, position: int, data: bytes | bytearray) -> None:
        path = os.path.join(folder, file_name(base))
        self.dirty.add(path)
        with open(path, "r+b", buffering=0) as file:
            file.seek(position)
            left = memoryview(data)
            while left:
                left = left[file.write(left) or 0 :]


class CompactionLog(FileWriter):
    """Of one queue of an open store. `damaged`: an entry does not lead to its record; open it again, with `whole`."""

    damaged = False

    @staticmethod
    def open(
        root: str,
        topic: str,
        queue_id: int,
        sizes: Sizes,
        *,
        verify: bool,
        report: Callable[[str], None],
        whole: bool = False,
    ) -> "CompactionLog":
        """Existing files keep their sizes. `verify`: the last file's records are checked, as after a kill; `whole`:
        those of all files. `report` gets a line for each repair. OSError."""
        places = [os.path.join(root, kind, topic, str(queue_id)) for kind in (LOG_FOLDER, QUEUE_FOLDER)]
        undo_of_apache(*places)
        move_replacements(*places)
        end_replacement(*places)
        found = [
            os.path.getsize(named_files(place)[0][1]) if named_files(place) else size
            for place, size in zip(places, sizes, strict=True)
        ]
        log = CompactionLog(places[0], places[1], Sizes(*found))
        log._load(verify, whole, report)
        return log

    def _load(self, verify: bool, whole: bool, report: Callable[[str], None]) -> None:
        bases = [base for base, _ in named_files(self.log_folder)]
        for base, path in named_files(self.queue_folder):
            if base not in bases:
                report(f"{path} has no file in {self.log_folder}: deleted")
                os.unlink(path)
        last = -1
        for base in bases:
            is_last = base == bases[-1]
            file = None if whole or (verify and is_last) else self._loaded(base)
            if file is None or 0 <= file.first <= last:
                file = self._rebuilt(base, last, report, is_last=is_last)
            self.files.append(file)
            last = max(last, file.last)

    def _loaded(self, base: int) -> CompactionFile | None:
        """The pair as the entries state it; None: they do not lead to its records."""
        try:
            count = self._count(base)
            first, last = (next(self._entries(base, at, 1), None) for at in (0, max(count - 1, 0)))
        except (OSError, struct.error):
            return None
        if first is None or last is None:
            is_empty = count == 0 and not self._read(base, base, SIZE.size)
            return CompactionFile(base, 0, -1, -1, base) if is_empty else None
        if first.at == base and self._is_sound(base, first) and self._is_sound(base, last):
            return CompactionFile(base, count, first.offset, last.offset, last.at + last.size)
        return None

    def _is_sound(self, base: int, entry: Entry) -> bool:
        if not base <= entry.at <= base + self.sizes.log - entry.size:
            return False
        return leads_to(entry, self._read(base, entry.at, HEAD.size))

    def _rebuilt(
        self, base: int, last: int, report: Callable[[str], None], *, is_last: bool
    ) -> CompactionFile:
        """Make the entries again, of whole records after offset `last`. In the last file nothing stays after the first
        that is not whole: what is missing is copied again. In others the entries lead to those after it."""
        path, queue = (
            os.path.join(folder, file_name(base)) for folder in (self.log_folder, self.queue_folder)
        )
        entries, first, end = bytearray(), -1, base
        starts = [] if is_last else self._sound_starts(base)
        for record in scan(path, base, starts):
            if record.queue_offset > last:
                last, first = record.queue_offset, record.queue_offset if first < 0 else first
                code = java_hash(record.properties.get("TAGS", ""))
                at = record.physical_offset
                entries += ENTRY.pack(at, record.size, code, record.store_timestamp, last, 1, -1, 0)
            end = record.physical_offset + record.size
        before = b""
        with contextlib.suppress(FileNotFoundError), open(queue, "rb") as file:
            before = file.read(len(entries) + ENTRY.size)
        if before[: len(entries)] != entries or is_entry(before[len(entries) :]):
            report(
                f"{queue} does not have the records of {path}: made again, of {len(entries) // ENTRY.size}"
            )
            make_dirs(self.queue_folder)
            with open(queue, "wb") as file:
                file.write(entries)
                file.truncate(self.sizes.queue)
        if is_last:
            zero_from(path, end - base, self.sizes.log)
        self.dirty |= {path, queue, self.queue_folder}
        return CompactionFile(base, len(entries) // ENTRY.size, first, last if first >= 0 else -1, end)

    def _sound_starts(self, base: int) -> list[int]:
        """Where records of a file begin, by its entries."""
        try:
            count = self.sizes.queue // ENTRY.size
            return sorted(entry.at for entry in self._entries(base, 0, count) if self._is_sound(base, entry))
        except OSError:
            return []

    # ---- changes ----

    def truncate(self, offset: int) -> None:
        """Remove the messages from an offset on: the queue ends there. OSError."""
        while (self.files and self.files[-1].last >= offset) or (
            len(self.files) > 1 and not self.files[-1].entries
        ):
            file = self.files[-1]
            count = self._search(file, lambda entry: entry.offset >= offset)
            kept = next(self._entries(file.base, count - 1, 1), None) if count else None
            paths = [
                os.path.join(folder, file_name(file.base)) for folder in (self.queue_folder, self.log_folder)
            ]
            if kept is None:
                self.files.pop()
                self.dirty -= {*paths}
                for path in paths:
                    os.unlink(path)
                continue
            zero_from(paths[0], count * ENTRY.size, self.sizes.queue)
            zero_from(paths[1], kept.at + kept.size - file.base, self.sizes.log)
            self.dirty |= {*paths}
            end = kept.at + kept.size
            self.files[-1] = CompactionFile(file.base, count, file.first, kept.offset, end)

    def replacement(self) -> FileWriter:
        """Writes what `replace` takes, into empty folders. OSError."""
        folders = [os.path.join(folder, CLEANED) for folder in (self.log_folder, self.queue_folder)]
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
            make_dirs(folder)
        return FileWriter(folders[0], folders[1], self.sizes)

    def replace(self, compacted: "Compacted") -> None:
        """Take what `compact` has made of the first files. OSError: open the log again."""
        move_replacements(self.log_folder, self.queue_folder)
        self.files = [*compacted.files, *self.files[compacted.replaced :]]

    # ---- reading ----

    @property
    def first(self) -> int:
        """The first offset; -1: it has no message."""
        return next((file.first for file in self.files if file.first >= 0), -1)

    @property
    def end(self) -> int:
        """The offset after the last message; 0: it has none."""
        return next((file.last + 1 for file in reversed(self.files) if file.first >= 0), 0)

    @property
    def closed(self) -> tuple[CompactionFile, ...]:
        """The files that are not appended to any more."""
        return tuple(self.files[:-1])

    def entries(self, offset: int) -> Iterator[tuple[int, Entry]]:
        """The entries from the first one at or after an offset on, each with the base of its file. OSError."""
        for file in self.files:
            for entry in self.entries_of(file, offset):
                yield file.base, entry

    def entries_of(self, file: CompactionFile, offset: int) -> Iterator[Entry]:
        """The entries of a pair of files from the first one at or after an offset on. OSError."""
        if file.last < offset:
            return iter(())
        at = 0 if offset <= file.first else self._search(file, lambda entry: entry.offset >= offset)
        return self._entries(file.base, at, file.entries - at)

    def offset_by_time(self, timestamp_ms: int, upper: bool) -> int:
        """The offset of the first message stored at or after a time; `upper`: of the last one at or before it. -1: none
        was stored at that time or later (`upper`: later). OSError."""
        before = self.first
        for file in self.files:
            wanted = timestamp_ms + upper
            at = self._search(file, lambda entry, least=wanted: entry.store_ms >= least)  # type: ignore[misc]
            if at and upper:
                before = next(self._entries(file.base, at - 1, 1)).offset
            for entry in self._entries(file.base, at, min(file.entries - at, 1)):
                return before if upper else entry.offset
        return -1

    def record(self, offset: int) -> bytes | None:
        """The message at an offset. OSError."""
        for base, entry in self.entries(offset):
            record = self._read(base, entry.at, entry.size) if entry.offset == offset else b""
            return record if leads_to(entry, record) and len(record) == entry.size else None
        return None

    def records(self, base: int, at: int, length: int) -> bytes:
        """The bytes of records that follow each other in one file. OSError."""
        return self._read(base, at, length)

    def _search(self, file: CompactionFile, wanted: Callable[[Entry], bool]) -> int:
        low, high = 0, file.entries
        while low < high:
            middle = (low + high) // 2
            entry = next(self._entries(file.base, middle, 1), None)
            if entry is None or wanted(entry):
                high = middle
            else:
                low = middle + 1
        return low

    def _count(self, base: int) -> int:
        """How many entries a file has: what comes after them is none."""
        low, high = 0, self.sizes.queue // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if next(self._entries(base, middle, 1), None) is None:
                high = middle
            else:
                low = middle + 1
        return low

    def _entries(self, base: int, number: int, count: int) -> Iterator[Entry]:
        if count <= 0:
            return
        with open(os.path.join(self.queue_folder, file_name(base)), "rb", buffering=0) as file:
            while count > 0:
                file.seek(number * ENTRY.size)
                data = file.read(min(count, ENTRIES_AT_ONCE) * ENTRY.size)
                whole = len(data) // ENTRY.size
                for at in range(0, whole * ENTRY.size, ENTRY.size):
                    if not is_entry(data[at : at + ENTRY.size]):
                        return
                    yield Entry._make(ENTRY.unpack_from(data, at)[:5])
                if whole < min(count, ENTRIES_AT_ONCE):
                    return
                number, count = number + whole, count - whole

    def _read(self, base: int, at: int, length: int) -> bytes:
        """Without zeros at the end, which no record has."""
        with open(os.path.join(self.log_folder, file_name(base)), "rb", buffering=0) as file:
            file.seek(at - base)
            data = file.read(length)
        return data if data.rstrip(b"\0") else b""


class Compacted(NamedTuple):
    """What the first `replaced` files become; `last`: up to this offset only the newest message of a key is left."""

    files: tuple[CompactionFile, ...]
    replaced: int
    last: int


# ---- files ----


def leads_to(entry: Entry, record: bytes | memoryview) -> bool:
    """Whether these bytes, its first ones at least, are those of an entry's record."""
    if len(record) < HEAD.size:
        return False
    size, magic, _, _, _, offset, at, _, _ = HEAD.unpack_from(record)
    return magic in MAGICS and (size, offset, at) == (entry.size, entry.offset, entry.at)


def is_entry(data: bytes) -> bool:
    """Whether it is an entry of a message (Apache: offset >= 0 && size > 0 && msgBaseOffset >= 0 && batchSize > 0)."""
    if len(data) < ENTRY.size:
        return False
    at, size, _, _, offset, count, _, _ = ENTRY.unpack(data)
    return bool(at >= 0 and size > 0 and offset >= 0 and count > 0)


def split(body: bytes) -> Iterator[memoryview]:
    """The records that follow each other."""
    view, at = memoryview(body), 0
    while at < len(body):
        end = at + SIZE.unpack_from(body, at)[0]
        yield view[at:end]
        at = end


def offset_of(record: bytes | memoryview) -> int:
    """The record's offset in its queue."""
    found: int = LONG.unpack_from(record, AT_QUEUE_OFFSET)[0]
    return found


def store_ms(record: bytes | memoryview) -> int:
    more = V6_MORE if SIZE.unpack_from(record, AT_SYS_FLAG)[0] & BORN_V6 else 0
    found: int = LONG.unpack_from(record, AT_STORE_TIME + more)[0]
    return found


def scan(path: str, base: int, starts: Sequence[int] = ()) -> Iterator[Record]:
    """The whole records from the start of a file on; after one that is not whole, from the next of these starts on.
    OSError."""
    at = base
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while True:
            file.seek(at - base)
            record = _whole_record(file, base + size - at)
            if record is not None and record.physical_offset == at:
                yield record
                at += record.size
                continue
            later = bisect_right(starts, at)
            if later == len(starts):
                return
            at = starts[later]


def _whole_record(file: BinaryIO, left: int) -> Record | None:
    head = file.read(SIZE.size)
    size = SIZE.unpack(head)[0] if len(head) == SIZE.size else 0
    if not SIZE.size < size <= left:
        return None
    try:
        record = decode(head + file.read(size - SIZE.size))
    except RecordError:
        return None
    return record if record.size == size else None


def zero_from(path: str, position: int, size: int) -> None:
    """Zeros from a position on, in a file of a fixed size. OSError."""
    os.truncate(path, position)
    os.truncate(path, size)


def sync_files(paths: Iterable[str]) -> None:
    """Sync files and folders, unless they are deleted. Any thread. OSError."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path):
                fsync_dir(path)
                continue
            with open(path, "rb", buffering=0) as file:
                os.fdatasync(file.fileno())


def commit_replacement(log_folder: str, queue_folder: str, replaced: Iterable[CompactionFile]) -> None:
    """What is in the folders `cleaned`, which are synced, replaces these files. Any thread. OSError."""
    cleaned = os.path.join(log_folder, CLEANED)
    names = " ".join(name for name in sorted(os.listdir(cleaned)))
    old = " ".join(file_name(file.base) for file in replaced)
    replace_durably(os.path.join(cleaned, REPLACED), f"{names}\n{old}\n".encode())
    fsync_dir(os.path.join(queue_folder, CLEANED))
    os.rename(cleaned, os.path.join(log_folder, SWAP))
    fsync_dir(log_folder)


def move_replacements(log_folder: str, queue_folder: str) -> None:
    """Go on with a replacement that is committed. OSError: call it again."""
    swap = os.path.join(log_folder, SWAP)
    try:
        with open(os.path.join(swap, REPLACED), encoding="ascii") as file:
            names, old = (line.split() for line in file.read().split("\n")[:2])
    except FileNotFoundError:
        return
    for name in names:
        for fresh, folder in ((os.path.join(queue_folder, CLEANED), queue_folder), (swap, log_folder)):
            with contextlib.suppress(FileNotFoundError):  # moved before
                os.replace(os.path.join(fresh, name), os.path.join(folder, name))
    for name in set(old) - set(names):
        for folder in (queue_folder, log_folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


def end_replacement(log_folder: str, queue_folder: str) -> None:
    """Make moved files durable, then forget the replacement, or what was not committed. Any thread. OSError."""
    for folder in (queue_folder, log_folder):
        if os.path.isdir(folder):
            fsync_dir(folder)
    for path in (
        os.path.join(queue_folder, CLEANED), os.path.join(log_folder, CLEANED), os.path.join(log_folder, SWAP),
    ):  # fmt: skip
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def undo_of_apache(log_folder: str, queue_folder: str) -> None:
    """Settle what Apache's broker has left half replaced. The old files, which it has renamed, are whole until all new
    ones are in their place; entries are made again where they do not fit."""
    for folder in (log_folder, queue_folder):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        fresh = os.path.join(folder, "compacting")
        is_whole = folder == log_folder and os.path.isdir(fresh) and os.listdir(fresh)
        for name in names:
            if name.endswith(DELETED):
                path = os.path.join(folder, name)
                os.replace(path, path.removesuffix(DELETED)) if is_whole else os.unlink(path)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(fresh)
