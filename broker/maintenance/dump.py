"""Prints what a store holds: records, queue entries, index files, the checkpoint. Reads only; one thread.

Records are printed in the order of the log, or of a queue if topic and queue are given. After damage it
reports the damaged range and continues at the next record that contains its own physical offset.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from firearrow._native.columnar.record_spans import End, walk
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.log_reader import LogReader, boundary
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import ENTRY, PRE_BLANK_SIZE, reader_of
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.checkpoint import SEAL_AT, Checkpoint
from firearrow._native.store.log.record import Record, RecordError, decode
from firearrow._native.store_checks.index_files import index_files

WINDOW_BYTES = 8 << 20
ENTRIES_AT_ONCE = 4096
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A record must match every field that is not None.

    `since_ms`, `until_ms` (exclusive): store times. `from_offset`: queue offset, or physical without a queue.
    `limit` 0: all. `key`: one of KEYS, or UNIQ_KEY.
    """

    topic: str | None = None
    queue_id: int | None = None
    from_offset: int | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 0

    def fits(self, record: Record) -> bool:
        return (
            (self.topic is None or record.topic == self.topic)
            and (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.since_ms is None or record.store_timestamp >= self.since_ms)
            and (self.until_ms is None or record.store_timestamp < self.until_ms)
            and (self.key is None or self._has_key(record.properties))
        )

    def _has_key(self, properties: dict[str, str]) -> bool:
        return self.key == properties.get("UNIQ_KEY") or self.key in properties.get("KEYS", "").split(" ")


def records(root: str, query: RecordQuery, report: Report, *, check_crc: bool = True) -> Iterator[Record]:
    """Yield matching records in the order of the log; of the queue, if topic and queue are given.

    `report` is called with what cannot be read. Raises StoreUnreadable.
    """
    in_queue = query.topic is not None and query.queue_id is not None
    found = _of_queue(root, query, report) if in_queue else _of_log(root, query, report, check_crc=check_crc)
    count = 0
    for record in found:
        if query.fits(record) or (in_queue and _fits_lmq(query, record)):
            yield record
            count += 1
            if count == query.limit:
                return


def _fits_lmq(query: RecordQuery, record: Record) -> bool:
    """A light queue (LMQ) refers to records of other topics."""
    is_lmq = query.topic is not None and query.topic.startswith("%LMQ%")
    any_topic = RecordQuery(key=query.key, since_ms=query.since_ms, until_ms=query.until_ms)
    return is_lmq and any_topic.fits(record)


def _of_log(root: str, query: RecordQuery, report: Report, *, check_crc: bool) -> Iterator[Record]:
    log = LogFiles(os.path.join(root, "commitlog"), MappedFiles())
    start = boundary(log, query.from_offset or log.first)
    if start is None:
        return

    def torn(low: int, high: int, why: str) -> None:
        report(f"from {low} to {high}: {why}")

    for spans in LogReader(log, start, None, torn, check_crc=check_crc, within_files=True).spans(
        WINDOW_BYTES
    ):
        for number in range(len(spans)):
            if query.topic is None or spans.topic(number) == query.topic:
                yield spans[number]


def _of_queue(root: str, query: RecordQuery, report: Report) -> Iterator[Record]:
    folder = queue_folder(root, query.topic or "", query.queue_id or 0)
    log = LogFiles(os.path.join(root, "commitlog"), MappedFiles())
    for number, physical, size, _ in queue_entries(folder, query.from_offset):
        data = log.record(physical, size)
        try:
            yield decode(data)
        except RecordError as error:
            if physical >= log.first:
                why = error if data else "no record of its size is there"
                report(f"entry {number} refers to {physical}: {why}")


def is_boundary(root: str, physical_offset: int) -> bool:
    """Whether a record, or the free space after the last one, begins at this physical offset."""
    log = LogFiles(os.path.join(root, "commitlog"), MappedFiles())
    mapping = log.window(physical_offset)
    if mapping is None:
        return False
    at = physical_offset - mapping.base
    spans, _, why = walk(mapping.window, at, at + 1, base=mapping.base)
    if len(spans) or why is End.BLANK:
        return True
    start = boundary(log, mapping.base)
    return start is not None and why is End.UNWRITTEN and log.end(start) == physical_offset


def queue_folder(root: str, topic: str, queue_id: int) -> str:
    """Raises StoreUnreadable if the store has no such queue."""
    folder = StoreFolder("", root).folder_of(topic, queue_id)
    if "/" in topic or not topic or not os.path.isdir(folder):
        raise StoreUnreadable(
            f"{root} has no queue {queue_id} of {topic!r}: `firearrow store stat` lists its queues"
        )
    return folder


def queue_entries(folder: str, start: int | None) -> Iterator[tuple[int, int, int, int]]:
    """Yield (queue offset, physical offset, size, tags code) of written entries. Raises StoreUnreadable."""
    entries = reader_of(folder)
    entries.refresh()
    try:
        end = entries.end()
        for first, rows in entries.runs(max(entries.first, start or 0), end, ENTRIES_AT_ONCE):
            for number, (physical, size, code) in enumerate(ENTRY.iter_unpack(rows), first):
                if 0 < size < PRE_BLANK_SIZE:
                    yield number, physical, size, code
    finally:
        entries.close()


TEXT_CHARS = 100
YEAR_10000_MS = 253_402_300_800_000
Row = dict[str, Any]


class BodyFormat(StrEnum):
    """How bodies are printed. `file`: each is written to a separate file."""

    TEXT = "text"
    HEX = "hex"
    NONE = "none"
    FILE = "file"


class RecordPrinter:
    """Formats records as rows for JSON, or as lines. `folder`: where BodyFormat.FILE writes."""

    def __init__(self, body: BodyFormat, folder: Path | None) -> None:
        self._body, self._folder = body, folder

    def row(self, record: Record) -> Row:
        row: Row = {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "physicalOffset": record.physical_offset,
            "size": record.size,
            "storeTimestamp": record.store_timestamp,
            "bornTimestamp": record.born_timestamp,
            "bornHost": host(record.born_host),
            "storeHost": host(record.store_host),
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "preparedOffset": record.prepared_offset,
            "bodyCrc": record.body_crc,
            "bodyBytes": len(record.body),
            "properties": record.properties,
        }
        if self._body is BodyFormat.TEXT:
            row["body"] = record.body.decode("utf-8", "replace")
        elif self._body is BodyFormat.HEX:
            row["body"] = record.body.hex()
        elif self._body is BodyFormat.FILE:
            row["body"] = str(self._write(record))
        return row

    def line(self, record: Record) -> str:
        row = self.row(record)
        properties = record.properties
        keys = " ".join(
            f"{name}={properties[name]}" for name in ("UNIQ_KEY", "KEYS", "TAGS") if name in properties
        )
        text = printable(str(row.get("body", "")))
        shown = text if len(text) <= TEXT_CHARS or self._body is BodyFormat.FILE else text[:TEXT_CHARS] + "…"
        position = f"{record.physical_offset:>14} {record.topic}:{record.queue_id}:{record.queue_offset}"
        stored = time_text(record.store_timestamp)
        return f"{position}  {stored}  {record.size} B  {printable(keys)}  {shown}".rstrip()

    def _write(self, record: Record) -> Path:
        """Write the body to a file. Raises OSError."""
        assert self._folder is not None
        path = self._folder / f"{record.physical_offset:020d}"
        path.write_bytes(record.body)
        return path


def entry_rows(root: str, topic: str, queue_id: int, start: int | None) -> Iterator[Row]:
    """Yield the entries of one queue. Raises StoreUnreadable."""
    for number, physical, size, code in queue_entries(queue_folder(root, topic, queue_id), start):
        yield {"queueOffset": number, "physicalOffset": physical, "size": size, "tagsCode": code}


def index_rows(root: str, slots: int) -> Iterator[Row]:
    """Yield one row per index file."""
    for file in index_files(StoreFolder("", root), slots):
        head = file.head
        yield {
            "file": Path(file.path).name,
            "bytes": file.segment.length,
            "slots": file.slots,
            "entries": head.next_entry - 1,
            "slotsUsed": head.slots_used,
            "beginTimestamp": head.begin_ms,
            "endTimestamp": head.end_ms,
            "beginPhysicalOffset": head.begin_offset,
            "endPhysicalOffset": head.end_offset,
        }


def checkpoint_row(root: str) -> Row:
    path = Path(root, "checkpoint")
    data = path.read_bytes() if path.exists() else b""
    return {
        "bytes": len(data),
        **asdict(Checkpoint.load(str(path))),
        "sealed": any(data[SEAL_AT : SEAL_AT + 8]),
    }


def print_rows(rows: Iterator[Row], *, json: bool, limit: int = 0) -> int:
    """Print rows as JSON lines or `name=value` lines; return how many."""
    return print_all(rows, (lambda row: row) if json else None, _plain, limit)


def print_all(
    items: Iterator[Any], as_row: Callable[[Any], Row] | None, as_line: Callable[[Any], str], limit: int = 0
) -> int:
    out, count = sys.stdout.buffer, 0
    for item in items:
        if as_row is not None:
            out.write(orjson.dumps(as_row(item), option=orjson.OPT_APPEND_NEWLINE))
        else:
            out.write(as_line(item).encode("utf-8", "replace") + b"\n")
        count += 1
        if count == limit:
            break
    out.flush()
    return count


def _plain(row: Row) -> str:
    return "  ".join(f"{name}={value}" for name, value in row.items())


def printable(text: str) -> str:
    """Replace control characters: a message must not control the terminal."""
    return "".join(char if char.isprintable() else "·" for char in text)


def time_text(stamp_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds."""
    if not 0 <= stamp_ms < YEAR_10000_MS:
        return f"{stamp_ms} ms"
    whole = datetime.fromtimestamp(stamp_ms // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{stamp_ms % 1000:03d}Z"


def host(raw: bytes) -> str:
    """Format address and port from the 8 or 20 bytes of a record."""
    from ipaddress import ip_address  # noqa: PLC0415 (slow to load)

    address, port = ip_address(raw[:-4]), int.from_bytes(raw[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
