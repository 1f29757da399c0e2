"""The segment files of a folder (commit log, consume queue): one size, no gap, named after their first byte.

A writer repairs them: missing bytes and files become zeros, files that do not fit are moved aside. Reads and
writes no record. Any thread.
"""

import os
import re
from collections.abc import Set
from itertools import pairwise
from typing import NamedTuple

from firearrow._native.store.files.errors import StoreDamaged, StoreForeign
from firearrow._native.store.files.repair_log import RepairLog

FILE_NAME = re.compile(r"[0-9]{20}")
POSITION_MAX = (1 << 63) - 1
MISSING_MAX = 1024
"""If more files than this are missing between two, the later ones are not part of the sequence."""

SECTOR_BYTES = 512
"""Configured file sizes are multiples of this."""

Files = list[tuple[int, str]]
FIRST: tuple[int, ...] = (0,)


def file_name(position: int) -> str:
    return f"{position:020d}"


FIRST_FILE = file_name(0)


def named_files(folder: str) -> Files:
    """(first byte, path) of all files named after an offset, in order; folders and other names are
    skipped."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [(int(name), os.path.join(folder, name)) for name in names if FILE_NAME.fullmatch(name)]
    return [(position, path) for position, path in paths if os.path.isfile(path)]


def rolled_files(folder: str, file_bytes: int, key: str) -> Files:
    """The files as they are, for a reader, without an empty last one. StoreForeign: wrong size; StoreDamaged:
    a gap."""
    found = named_files(folder)
    if found and os.path.getsize(found[-1][1]) == 0:
        found.pop()
    for _, path in found:
        if os.path.getsize(path) != file_bytes:
            raise foreign_size(path, file_bytes, key)
    for (before, path), (after, _) in pairwise(found):
        if after != before + file_bytes:
            raise StoreDamaged(f"{folder} has a gap after {path}: restore the missing file")
    return found


def foreign_size(path: str, file_bytes: int, key: str) -> StoreForeign:
    size = os.path.getsize(path)
    return StoreForeign(
        f"{path} has {size} bytes, not {file_bytes}: set {key}={size} if the store was created with that "
        f"size; otherwise set the file's size with `truncate -s {file_bytes}`, or restore it"
    )


def is_of_another_size(found: Files, file_bytes: int) -> bool:
    """Whether the files were created with another size rather than damaged: no size and no distance fits."""
    sizes = {os.path.getsize(path) for _, path in found} - {0}
    if not sizes or file_bytes in sizes:
        return False
    if len(found) > 1:
        return min(after - before for (before, _), (after, _) in pairwise(found)) != file_bytes
    (position, size) = found[0][0], sizes.pop()
    fits_name = position > 0 and position % file_bytes == 0 and position % size != 0
    return not fits_name and size % SECTOR_BYTES == 0


def repaired_files(folder: str, file_bytes: int, repair_log: RepairLog, *, head: bytes | None) -> Files:
    """The files, repaired in place; each finding is recorded. OSError, StoreDamaged.

    `head`: first bytes of a file that replaces a missing one; None: the files are derived and will be
    rebuilt.
    """
    report_foreign_files(folder, repair_log)
    found = _in_sequence(_without_empty_end(named_files(folder)), file_bytes, repair_log)
    for position, path in found:
        size = os.path.getsize(path)
        if size != file_bytes:
            repair_log.rebuild = True
            if head is not None and size < file_bytes and position < found[-1][0]:
                repair_log.highest_offset = position + file_bytes
            _resize(path, size, file_bytes, repair_log, head is None)
    return _without_gaps(found, folder, file_bytes, repair_log, head)


def report_foreign_files(folder: str, repair_log: RepairLog) -> None:
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not FILE_NAME.fullmatch(name) and not os.path.isdir(path):
            repair_log.record(f"{path} is not a store file: left in place")


def _without_empty_end(found: Files) -> Files:
    """Delete empty last files: created, but never written. Apache does the same."""
    while found and os.path.getsize(found[-1][1]) == 0:
        os.unlink(found.pop()[1])
    return found


def _in_sequence(found: Files, file_bytes: int, repair_log: RepairLog) -> Files:
    """Move files aside whose name is not an offset at which a file can start."""
    fitting = []
    for position, path in found:
        if position % file_bytes or position > POSITION_MAX - file_bytes:
            repair_log.rebuild = True
            moved_to = repair_log.move_aside(path)
            repair_log.record(
                f"no file of {file_bytes} bytes starts at the offset in {path}: moved to {moved_to}"
            )
        else:
            fitting.append((position, path))
    return fitting


def _resize(path: str, size: int, file_bytes: int, repair_log: RepairLog, derived: bool) -> None:
    """Truncate a file to its size, or fill it with zeros."""
    if size < file_bytes:
        then = "rebuilt from the log" if derived else "filled with zeros, the missing bytes are lost"
        repair_log.record(f"{path} is truncated to {size} of {file_bytes} bytes: {then}")
    else:
        copy = None if derived else repair_log.save_copy(path, file_bytes, size - file_bytes)
        kept = f", the removed bytes are in {copy}" if copy else ""
        repair_log.record(f"{path} had {size} bytes, not {file_bytes}: truncated{kept}")
    os.truncate(path, file_bytes)
    if derived:
        _allocate(path, file_bytes)


def _allocate(path: str, file_bytes: int) -> None:
    """Allocate all blocks: entries are written through a mapping, where a full disk would be a SIGBUS.
    OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(file, 0, file_bytes)
    finally:
        os.close(file)


def _make(path: str, file_bytes: int, head: bytes | None) -> None:
    if head is None:
        return _allocate(path, file_bytes)
    with open(path, "xb") as file:
        file.write(head)
        file.truncate(file_bytes)
    return None


def _without_gaps(
    found: Files, folder: str, file_bytes: int, repair_log: RepairLog, head: bytes | None
) -> Files:
    then = "rebuilt from the log" if head is None else "replaced by an empty file, its messages are lost"
    whole: Files = found[:1]
    for position, path in found[1:]:
        after = whole[-1][0] + file_bytes
        if (position - after) // file_bytes > MISSING_MAX:
            raise StoreDamaged(
                f"{folder} lacks {(position - after) // file_bytes} files before {path}: restore them, or "
                "move that file and all later ones away to start without them"
            )
        if head is not None and after < position:
            repair_log.highest_offset = max(repair_log.highest_offset, position)
        while after < position:
            missing = os.path.join(folder, file_name(after))
            _make(missing, file_bytes, head)
            repair_log.rebuild = True
            repair_log.record(f"{missing} is missing: {then}")
            whole.append((after, missing))
            after += file_bytes
        whole.append((position, path))
    return whole


def move_other_kind(folder: str, topics: Set[bytes], repair_log: RepairLog) -> None:
    """Move the queues of topics aside that have queues of the other kind; those are rebuilt from the log. OSError."""
    for name in map(os.fsdecode, topics):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            repair_log.rebuild = True
            moved_to = repair_log.move_aside(path)
            repair_log.record(
                f"{path} has not the kind of queues that topics.json states: moved to {moved_to}"
            )


class QueueFolder(NamedTuple):
    """`positions`: the first byte of each file."""

    topic: str
    queue_id: int
    positions: tuple[int, ...]


def repaired_queues(
    folder: str, file_bytes: int, queue_id_max: int, key: str, repair_log: RepairLog
) -> list[QueueFolder]:
    """Every queue in `consumequeue` or `batchconsumequeue`, its files repaired. OSError; StoreForeign: all files have
    the same other size, so the store was created with it. `key` sets the size. There may be a million, most with one
    file: one look at each, and another one at those that need it."""
    found, doubtful, count = [], [], 0
    sizes: dict[int, str] = {}
    for topic in sorted(os.listdir(folder)):
        path = os.path.join(folder, topic)
        if not os.path.isdir(path):
            repair_log.record(f"{path} is not a queue folder: left in place")
            continue
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if _is_queue(entry, queue_id_max))
        for name in names:
            queue = os.path.join(path, name)
            with os.scandir(queue) as entries:
                files = [(entry.name, entry.stat().st_size, entry.path) for entry in entries]
            sizes.update((size, file) for file_name, size, file in files if FILE_NAME.fullmatch(file_name))
            count += len(files)
            if len(files) == 1 and files[0][:2] == (FIRST_FILE, file_bytes):
                found.append(QueueFolder(topic, int(name), FIRST))
            else:
                doubtful.append((topic, int(name), queue))
    if count > 1 and len(sizes) == 1 and not sizes.keys() & {0, file_bytes}:
        raise foreign_size(next(iter(sizes.values())), file_bytes, key)
    for topic, queue_id, queue in doubtful:
        repaired = repaired_files(queue, file_bytes, repair_log, head=None)
        found.append(QueueFolder(topic, queue_id, tuple(position for position, _ in repaired)))
    return found


def _is_queue(entry: os.DirEntry[str], queue_id_max: int) -> bool:
    name = entry.name
    return name.isdecimal() and str(int(name)) == name and int(name) <= queue_id_max and entry.is_dir()
