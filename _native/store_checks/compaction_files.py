"""Checks the compacted messages of a store that no broker has open: `compaction/`. Reads only."""

from functools import partial
from pathlib import Path

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.segment_files import file_name, named_files
from firearrow._native.store.log.compaction_log import ENTRY, LOG_FOLDER, QUEUE_FOLDER, SWAP, is_entry, scan
from firearrow._native.store_checks.findings import Add, Kind


def check_compaction_files(store: StoreFolder, add_any: Add, notes: list[str]) -> None:
    """Whether each record has its entry, and each entry its record, in the order of their offsets."""
    root = Path(store.root)
    folder = root / LOG_FOLDER
    if folder.is_dir() and store.is_running():
        return notes.append("a broker is running: the files of compaction topics were not checked")
    for place in sorted(folder.glob("*/*")) if folder.is_dir() else ():
        try:
            if (place / SWAP).exists():
                notes.append(
                    f"{place} is being compacted: the next start goes on, its files were not checked"
                )
            elif place.is_dir():
                _check(place, root / QUEUE_FOLDER / place.relative_to(folder), add_any)
        except OSError as error:
            add_any(Kind.COMPACTION, Path(error.filename or place), 0, f"it cannot be read: {error.strerror}")
    return None


def _check(folder: Path, queue_folder: Path, add_any: Add) -> None:
    add = partial(add_any, Kind.COMPACTION)
    bases, last = [base for base, _ in named_files(str(folder))], -1
    for base, without in named_files(str(queue_folder)):
        if base not in bases:
            add(Path(without), 0, "it has no file of records")
    for base in bases:
        path, queue = folder / file_name(base), queue_folder / file_name(base)
        if not queue.exists():
            add(queue, 0, "the entries of a file of records are missing")
            continue
        data, at, number = queue.read_bytes(), 0, 0
        for number, record in enumerate(scan(str(path), base), 1):
            if record.queue_offset <= last:
                add(path, at, f"the message at offset {record.queue_offset} comes after that at {last}")
            last = record.queue_offset
            entry = data[(number - 1) * ENTRY.size : number * ENTRY.size]
            wanted = (base + at, record.size, record.store_timestamp, record.queue_offset)
            if not is_entry(entry) or _fields(entry) != wanted:
                text = f"the entry does not lead to the message at offset {record.queue_offset}"
                return add(queue, (number - 1) * ENTRY.size, text)
            at += record.size
        if is_entry(data[number * ENTRY.size : (number + 1) * ENTRY.size]):
            return add(path, at, "there is no whole record where an entry states one")
    return None


def _fields(entry: bytes) -> tuple[int, int, int, int]:
    at, size, _, store_ms, offset, _, _, _ = ENTRY.unpack(entry)
    return at, size, store_ms, offset
