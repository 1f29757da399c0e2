"""What native checks found, as findings for people: which file, which place in it, one sentence."""

from collections.abc import Sequence
from pathlib import Path

from firearrow._native.audit.findings import Finding, Kind
from firearrow._native.audit.store import AuditedStore
from firearrow._native.checks.findings import Fault, FaultKind
from firearrow._native.offline.queue_reader import ENTRY
from firearrow._native.offline.segment_files import SegmentFile, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreUnreadable

KINDS = {
    FaultKind.BAD_CRC: Kind.BAD_CRC,
    FaultKind.NO_ENTRY: Kind.NO_ENTRY,
    FaultKind.WRONG_ENTRY: Kind.WRONG_ENTRY,
    FaultKind.WRONG_TAGS: Kind.WRONG_TAGS,
    FaultKind.LOST_RECORD: Kind.LOST_RECORD,
    FaultKind.QUEUE_GAP: Kind.QUEUE_GAP,
    FaultKind.QUEUE_ORDER: Kind.QUEUE_ORDER,
    FaultKind.NO_KEY: Kind.NO_KEY,
    FaultKind.WRONG_KEY: Kind.WRONG_KEY,
    FaultKind.INDEX_CHAIN: Kind.INDEX_CHAIN,
    FaultKind.INDEX_SLOT: Kind.INDEX_SLOT,
    FaultKind.INDEX_ORDER: Kind.INDEX_ORDER,
}


def log_finding(store: AuditedStore, segments: Sequence[SegmentFile], fault: Fault) -> Finding:
    """BAD_CRC and NO_KEY."""
    kind = KINDS[fault.kind]
    segment = segment_at(segments, fault.place)
    assert segment is not None, "a fault lies in the segment that was walked"
    of_body = kind is Kind.BAD_CRC
    text = (
        "the body does not have the record's CRC"
        if of_body
        else f"a key, hash {fault.seen}, is not in the index"
    )
    return Finding(
        kind, store.name, segment.path, fault.place - segment.base, text + and_others(fault.times),
        physical_offset=fault.place, count=fault.times, bytes=fault.size if of_body else 0,
    )  # fmt: skip


def queue_finding(store: AuditedStore, topic: bytes, queue_id: int, fault: Fault) -> Finding:
    """All kinds of queue entries."""
    path, base = _queue_file(store, topic, queue_id, fault.number)
    return Finding(
        KINDS[fault.kind], store.name, path, fault.number * ENTRY.size - base, _sentence(fault) + and_others(fault.times),
        physical_offset=fault.place if fault.place >= 0 else None, topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id, queue_offset=fault.number, count=fault.times, bytes=fault.size,
    )  # fmt: skip


def gap_finding(store: AuditedStore, segment: SegmentFile, kind: Kind, start: int, end: int, why: str) -> Finding:
    """Physical offsets [start, end), `start` in the segment, hold no record."""
    return Finding(
        kind, store.name, segment.path, start - segment.base, f"{end - start} bytes are no record: {why}",
        physical_offset=start, bytes=end - start,
    )  # fmt: skip


def and_others(count: int) -> str:
    return f", and {count - 1} more behind it" if count > 1 else ""


def _sentence(fault: Fault) -> str:
    number, place, seen = fault.number, fault.place, fault.seen
    match fault.kind:
        case FaultKind.NO_ENTRY:
            return f"the record at {place} has queue offset {number}, and no entry is there"
        case FaultKind.WRONG_ENTRY if seen == place:
            return f"entry {number} shows {place} with another size than the record has"
        case FaultKind.WRONG_ENTRY:
            return f"entry {number} shows {seen}, and its record lies at {place}"
        case FaultKind.WRONG_TAGS:
            return f"entry {number} has tags code {seen}, and the record at {place} has other tags"
        case FaultKind.LOST_RECORD:
            return f"entry {number} shows {place}, where no record of it is"
        case FaultKind.QUEUE_GAP:
            return f"nothing was written at queue offset {number}"
        case _:
            return f"entry {number} shows {place}, out of order: beside it {seen}"


def _queue_file(store: AuditedStore, topic: bytes, queue_id: int, number: int) -> tuple[str, int]:
    """The file that has an entry and its base; the folder if none has it."""
    folder = store.queue_folder(topic, queue_id)
    if folder is None:
        return store.path("consumequeue"), 0
    try:
        segment = segment_at(rolled_files(folder), number * ENTRY.size)
    except StoreUnreadable:
        segment = None
    return (str(Path(folder)), 0) if segment is None else (segment.path, segment.base)
