"""Messages of a CompactionLog: read with gaps between their offsets, and compacted (Apache: CompactionLog).

`get` is what StoreReader does with an offset that a log covers. `compact` is a job of a thread: it reads files that
nothing changes meanwhile, and writes into folders of its own.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain

from firearrow._native.base.hash import java_hash
from firearrow._native.store.get_message import GetResult, GetStatus
from firearrow._native.store.log.compaction_log import (
    BORN_V6,
    V6_MORE,
    Compacted,
    CompactionFile,
    CompactionLog,
    Entry,
    leads_to,
    sync_files,
)
from firearrow._native.store.log.properties import property_values

KEY_BYTES = 192
"""Memory that a key takes in the map of newest offsets."""
KEYS_MIN = 100
RUN_BYTES, RUN_ENTRIES = 1 << 20, 128
"""Records are read in pieces of this size, or one by one if they are larger; other threads go on after each piece."""
READ_BYTES = 1 << 15
"""Of records that follow each other, for one answer."""
AT_FLAG_BYTE, STORE_V6, BODY_AT = 39, 0x20, 84

Limits = tuple[int, int, int]
"""Of one `get`, as of other topics: bytes, messages, and entries that are looked at."""


def get(
    log: CompactionLog,
    offset: int,
    high: int,
    max_count: int,
    max_bytes: int,
    limits: Limits,
    tags: frozenset[int] | None,
    accept: Callable[[memoryview], bool] | None,
) -> GetResult:
    """The messages at an offset before the end of a log, or the next ones (Apache: CompactionLog.getMessage, without
    filters). OSError."""
    bytes_max, count_max, entries_max = min(max_bytes, limits[0]), min(max_count, limits[1]), limits[2]
    status, next_offset, body, count = GetStatus.NO_MATCHED_MESSAGE, offset, bytearray(), 0
    read, start, data = -1, 0, b""
    for number, (base, entry) in enumerate(log.entries(offset)):
        if number >= entries_max or (count and (count >= count_max or len(body) + entry.size > bytes_max)):
            break
        next_offset = entry.offset + 1
        if tags is not None and _code(entry.tags_code) not in tags:
            continue
        if base != read or not start <= entry.at <= start + len(data) - entry.size:
            read, start, data = base, entry.at, log.records(base, entry.at, max(entry.size, READ_BYTES))
        record = data[entry.at - start : entry.at - start + entry.size]
        if len(record) < entry.size or not leads_to(entry, record):
            log.damaged = True
        elif accept is None or accept(memoryview(record)):
            body += record
            count += 1
            status = GetStatus.FOUND
    return GetResult(status, next_offset, log.first, max(high, log.end), count, bytes(body), False)


def _code(tags_code: int) -> int:
    """Its lower 32 bits, signed."""
    return ((tags_code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


# ---- compaction ----


def compact(
    log: CompactionLog,
    files: tuple[CompactionFile, ...],
    position: int,
    map_bytes: int,
    pause: Callable[[], None],
) -> Compacted | None:
    """Write what is left of the files into the folders `cleaned`, synced: of each key the newest message, none if its
    body is empty, and all that is newer than a full map covers. `pause` is called now and then: other threads go on.
    None: nothing is newer than `position`. OSError (Apache: CompactionLog.compaction)."""
    newest, last = _newest_offsets(log, files, position, max(map_bytes // KEY_BYTES, KEYS_MIN), pause)
    if not newest:
        return None
    writer = log.replacement()

    def is_kept(entry: Entry, record: memoryview) -> bool:
        if entry.offset > last:
            return True
        key = key_of(record)
        return key is not None and newest.get(key, -1) <= entry.offset and has_body(record)

    for run in _runs(log, files, -1):
        writer.append((record, entry.tags_code) for entry, record in run if is_kept(entry, record))
        pause()
    sync_files(writer.dirty)
    return Compacted(tuple(writer.files), len(files), last)


def _newest_offsets(
    log: CompactionLog,
    files: tuple[CompactionFile, ...],
    position: int,
    keys_max: int,
    pause: Callable[[], None],
) -> tuple[dict[bytes, int], int]:
    """The newest offset of each key after a position, and up to which offset the map has them (Apache: OffsetMap)."""
    newest: dict[bytes, int] = {}
    last = position
    for run in _runs(log, files, position):
        for entry, record in run:
            key = key_of(record)
            if key is not None:
                if key not in newest and len(newest) >= keys_max:
                    return newest, last
                newest[key] = entry.offset
            last = entry.offset
        pause()
    return newest, last


def _runs(
    log: CompactionLog, files: tuple[CompactionFile, ...], after: int
) -> Iterator[list[tuple[Entry, memoryview]]]:
    """All records of files with an offset after this one, in pieces."""
    for file in files:
        if file.last <= after:
            continue
        run: list[Entry] = []
        for entry in chain(log.entries_of(file, after + 1), [None]):
            full = run and (
                entry is None
                or len(run) >= RUN_ENTRIES
                or entry.at + entry.size - run[0].at > RUN_BYTES
                or entry.at != run[-1].at + run[-1].size
            )
            if full:
                data = memoryview(log.records(file.base, run[0].at, run[-1].at + run[-1].size - run[0].at))
                starts = [each.at - run[0].at for each in run]
                found = [(each, data[at : at + each.size]) for each, at in zip(run, starts, strict=True)]
                if not all(leads_to(entry, record) for entry, record in found):
                    log.damaged = True
                    raise OSError(f"entries in {log.queue_folder} do not lead to their records")
                yield found
                run = []
            if entry is not None:
                run.append(entry)


def key_of(record: memoryview) -> bytes | None:
    """A hash of the property KEYS, all of it; None: it is blank."""
    keys = property_values(record, {b"KEYS": "KEYS"}).get("KEYS", "")
    return hashlib.blake2b(keys.encode(), digest_size=16).digest() if keys.strip() else None


def tags_code_of(record: memoryview) -> int:
    """As the entry of a consume queue has it."""
    return java_hash(property_values(record, {b"TAGS": "TAGS"}).get("TAGS", ""))


def has_body(record: memoryview) -> bool:
    more = sum(V6_MORE for flag in (BORN_V6, STORE_V6) if record[AT_FLAG_BYTE] & flag)
    return bytes(record[BODY_AT + more : BODY_AT + more + 4]) != bytes(4)
