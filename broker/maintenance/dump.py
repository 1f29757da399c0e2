"""What a store holds, printed: records, entries of a queue, index files, the checkpoint. Reads only.

Which records of a store are wanted, and in which order: the log's, or a queue's. Reads only; one thread.

Over damage it goes on at the next record that knows its own place, and says so.
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

from firearrow._native.audit.index import index_files
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.columnar.record_spans import End, walk
from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.log_reader import LogReader, boundary
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import ENTRY, PRE_BLANK_SIZE, QueueReader
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.checkpoint import SEAL_AT, Checkpoint
from firearrow._native.store.log.record import Record, RecordError, decode

WINDOW_BYTES = 8 << 20
ENTRIES_AT_ONCE = 4096
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """What is not None must fit. Times: when it was stored, ms, `until_ms` exclusive. `from_offset`: of the queue, or
    physical without a queue. `limit` 0: all. `key`: one of KEYS, or UNIQ_KEY."""

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


def records(root: str, query: RecordQuery, report: Told, *, check_crc: bool = True) -> Iterator[Record]:
    """Those that fit, in the log's order; in the queue's if topic and queue are given, which shows what they show.

    `report` hears what cannot be read. StoreUnreadable.
    """
    in_queue = query.topic is not None and query.queue_id is not None
    found = _of_queue(root, query, report) if in_queue else _of_log(root, query, report, check_crc=check_crc)
    count = 0
    for record in found:
        if query.fits(record) or (in_queue and _fits_light(query, record)):
            yield record
            count += 1
            if count == query.limit:
                return


def _fits_light(query: RecordQuery, record: Record) -> bool:
    """A light queue shows records of other topics."""
    is_lmq = query.topic is not None and query.topic.startswith("%LMQ%")
    other = RecordQuery(key=query.key, since_ms=query.since_ms, until_ms=query.until_ms)
    return is_lmq and other.fits(record)


def _of_log(root: str, query: RecordQuery, report: Told, *, check_crc: bool) -> Iterator[Record]:
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


def _of_queue(root: str, query: RecordQuery, report: Told) -> Iterator[Record]:
    folder = queue_folder(root, query.topic or "", query.queue_id or 0)
    log = LogFiles(os.path.join(root, "commitlog"), MappedFiles())
    for number, physical, size, _ in queue_entries(folder, query.from_offset):
        data = log.record(physical, size)
        try:
            yield decode(data)
        except RecordError as error:
            if physical >= log.first:
                report(
                    f"entry {number} shows {physical}: {error if data else 'no record of its size is there'}"
                )


def is_boundary(root: str, place: int) -> bool:
    """Whether a record begins there, or the first free byte is there."""
    log = LogFiles(os.path.join(root, "commitlog"), MappedFiles())
    mapping = log.window(place)
    if mapping is None:
        return False
    at = place - mapping.base
    spans, _, why = walk(mapping.window, at, at + 1, base=mapping.base)
    if len(spans) or why is End.BLANK:
        return True
    start = boundary(log, mapping.base)
    return start is not None and why is End.UNWRITTEN and log.end(start) == place


def queue_folder(root: str, topic: str, queue_id: int) -> str:
    """StoreUnreadable: the store has no such queue."""
    folder = os.path.join(root, "consumequeue", topic, str(queue_id))
    if "/" in topic or not topic or not os.path.isdir(folder):
        raise StoreUnreadable(
            f"{root} has no queue {queue_id} of {topic!r}: `firearrow store stat` names those it has"
        )
    return folder


def queue_entries(folder: str, start: int | None) -> Iterator[tuple[int, int, int, int]]:
    """(queue offset, physical offset, size, tags code) of those that were written. StoreUnreadable."""
    entries = QueueReader(folder)
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
    """How bodies are shown. `file`: each in a file of its own."""

    TEXT = "text"
    HEX = "hex"
    NONE = "none"
    FILE = "file"


class RecordPrinter:
    """Records as rows for JSON, or as lines. `folder`: for Body.FILE."""

    def __init__(self, body: BodyFormat, folder: Path | None) -> None:
        self._body, self._folder = body, folder

    def row(self, record: Record) -> Row:
        row: Row = {
            "topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset,
            "physicalOffset": record.physical_offset, "size": record.size, "storeTimestamp": record.store_timestamp,
            "bornTimestamp": record.born_timestamp, "bornHost": host(record.born_host),
            "storeHost": host(record.store_host), "flag": record.flag, "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times, "preparedOffset": record.prepared_offset,
            "bodyCrc": record.body_crc, "bodyBytes": len(record.body), "properties": record.properties,
        }  # fmt: skip
        if self._body is BodyFormat.TEXT:
            row["body"] = record.body.decode("utf-8", "replace")
        elif self._body is BodyFormat.HEX:
            row["body"] = record.body.hex()
        elif self._body is BodyFormat.FILE:
            row["body"] = str(self._write(record))
        return row

    def line(self, record: Record) -> str:
        row = self.row(record)
        own = record.properties
        marks = " ".join(f"{name}={own[name]}" for name in ("UNIQ_KEY", "KEYS", "TAGS") if name in own)
        text = printable(str(row.get("body", "")))
        shown = text if len(text) <= TEXT_CHARS or self._body is BodyFormat.FILE else text[:TEXT_CHARS] + "…"
        place = f"{record.physical_offset:>14} {record.topic}:{record.queue_id}:{record.queue_offset}"
        return f"{place}  {time_text(record.store_timestamp)}  {record.size} B  {printable(marks)}  {shown}".rstrip()

    def _write(self, record: Record) -> Path:
        """OSError."""
        assert self._folder is not None
        path = self._folder / f"{record.physical_offset:020d}"
        path.write_bytes(record.body)
        return path


def entry_rows(root: str, topic: str, queue_id: int, start: int | None) -> Iterator[Row]:
    """Of one queue. StoreUnreadable."""
    for number, physical, size, code in queue_entries(queue_folder(root, topic, queue_id), start):
        yield {"queueOffset": number, "physicalOffset": physical, "size": size, "tagsCode": code}


def index_rows(root: str, slots: int) -> Iterator[Row]:
    """One of each index file."""
    for file in index_files(AuditedStore("", root), slots):
        head = file.head
        yield {
            "file": Path(file.path).name, "bytes": file.segment.length, "slots": file.slots,
            "entries": head.next_entry - 1, "slotsUsed": head.slots_used, "beginTimestamp": head.begin_ms,
            "endTimestamp": head.end_ms, "beginPhysicalOffset": head.begin_place, "endPhysicalOffset": head.end_place,
        }  # fmt: skip


def checkpoint_row(root: str) -> Row:
    path = Path(root, "checkpoint")
    data = path.read_bytes() if path.exists() else b""
    return {
        "bytes": len(data),
        **asdict(Checkpoint.load(str(path))),
        "sealed": any(data[SEAL_AT : SEAL_AT + 8]),
    }


def print_rows(rows: Iterator[Row], *, json: bool, limit: int = 0) -> int:
    """JSON lines, or `name=value` lines; how many."""
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
    """What a peer wrote does not steer a terminal."""
    return "".join(char if char.isprintable() else "·" for char in text)


def time_text(stamp_ms: int) -> str:
    """ISO 8601, UTC, to the ms."""
    if not 0 <= stamp_ms < YEAR_10000_MS:
        return f"{stamp_ms} ms"
    whole = datetime.fromtimestamp(stamp_ms // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{stamp_ms % 1000:03d}Z"


def host(raw: bytes) -> str:
    """Address and port of the 8 or 20 bytes of a record."""
    from ipaddress import ip_address  # noqa: PLC0415 (slow to load)

    address, port = ip_address(raw[:-4]), int.from_bytes(raw[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
