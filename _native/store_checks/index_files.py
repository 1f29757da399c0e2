"""Index files: lists them and checks their chains. `log_part` compares keys with records. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from firearrow._native.columnar.record_spans import walk
from firearrow._native.offline.index_file import IndexHeader, head_of, slots_of
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.segment_files import SegmentFile
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.findings import Extent, Findings, Kind, StoreFinding
from firearrow._native.store_checks.index_entries import check_chains
from firearrow._native.store_checks.raw_findings import RawFinding, RawFindings

HEAD_BYTES, SLOT_BYTES, ENTRY_BYTES = 40, 4, 20
KEYED = {b"KEYS": "keys", b"UNIQ_KEY": "unique key"}
RECORDS_SEEN = 1000
"""Of each file of the log, to find out whether messages have keys."""
NO_HEAD = IndexHeader(0, 0, 0, -1, 0, 1)


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """`slots` 0: the file has no entries, or its number of slots is unknown; then it is not compared with
    records."""

    segment: SegmentFile
    head: IndexHeader
    slots: int

    @property
    def path(self) -> str:
        return self.segment.path

    @property
    def is_whole(self) -> bool:
        """Whether it is large enough for the entries that its head counts; `check_index` reports one that
        is not."""
        capacity = (self.segment.length - HEAD_BYTES - self.slots * SLOT_BYTES) // ENTRY_BYTES
        return self.slots > 0 and self.head.next_entry <= max(1, capacity)

    def position(self, entry: int) -> int:
        return HEAD_BYTES + self.slots * SLOT_BYTES + entry * ENTRY_BYTES

    def finding(self, store: StoreFolder, raw: RawFinding) -> StoreFinding:
        """Of kind WRONG_KEY or INDEX_*."""
        number, position = raw.number, self.position(raw.number)
        match raw.kind:
            case Kind.WRONG_KEY:
                at, key_hash = raw.physical_offset, raw.seen
                text = f"entry {number} points to {at}, where no record has a key of hash {key_hash}"
            case Kind.INDEX_SLOT:
                position = HEAD_BYTES + number * SLOT_BYTES
                text = f"slot {number} points to {raw.seen}, but its newest entry is {raw.physical_offset}"
            case Kind.INDEX_ORDER:
                text = f"entry {number} points to {raw.physical_offset}, out of order"
            case _:
                text = f"entry {number} does not point to the previous entry of its slot, but to {raw.seen}"
        offset = raw.physical_offset if raw.kind is not Kind.INDEX_SLOT else None
        return raw.kind.finding(Extent(store.name, self.path, position, offset, bytes=raw.size), text)


def index_files(store: StoreFolder, slots: int = 0) -> list[IndexFileInfo]:
    """Oldest first. `slots` 0: found from the files; files of the same size have the same number of slots."""
    maps, found = MappedFiles(1), []
    slots_by_length: dict[int, int] = {}
    for path in store.index_paths():
        mapping = maps.get(SegmentFile(path, 0, 0))
        if mapping is None:
            continue
        length = len(mapping.window)
        whole = length >= HEAD_BYTES
        head = head_of(mapping.window) if whole else NO_HEAD
        if head.next_entry > 1 and length not in slots_by_length:
            seen = slots or slots_of(mapping.window)
            if seen:
                slots_by_length[length] = seen
        found.append(IndexFileInfo(SegmentFile(path, 0, length), head, 0))
    return [
        IndexFileInfo(
            file.segment,
            file.head,
            slots_by_length.get(file.segment.length, 0) if file.head.next_entry > 1 else 0,
        )
        for file in found
    ]


def check_index(store: StoreFolder, files: Sequence[tuple[IndexFileInfo, bool]]) -> tuple[Findings, int]:
    """Checks files, each given with whether it still grows: (findings, entries)."""
    findings, maps, entries = Findings(), MappedFiles(1), 0
    for file, growing in files:
        mapping = maps.get(file.segment)
        if mapping is None:
            continue
        whole = Extent(store.name, file.path, 0, bytes=len(mapping.window))
        if not file.slots:
            if file.head.next_entry > 1 or len(mapping.window) < HEAD_BYTES:
                why = "the number of its slots cannot be determined: give it with --index-slots"
                findings.add(Kind.INDEX_FILE.finding(whole, why))
            continue
        raw = RawFindings()
        try:
            entries += check_chains(mapping.window, file.slots, growing=growing, findings=raw)
        except ValueError as error:
            findings.add(Kind.INDEX_FILE.finding(whole, str(error)))
            continue
        findings.extend(raw.totals(), (file.finding(store, each) for each in raw.listed()))
    return findings, entries


def has_keys(store: StoreFolder, segments: Sequence[SegmentFile]) -> bool:
    """Whether one of the first messages in some file of the log has a key."""
    log = LogFiles(store.path("commitlog"), MappedFiles(1))
    for segment in segments:
        mapping = log.window(segment.base)
        if mapping is None:
            continue
        found, _, _ = walk(mapping.window, 0, len(mapping.window), base=segment.base, count_max=RECORDS_SEEN)
        if any(found.values(number, KEYED) for number in range(len(found))):
            return True
    return False
