"""What a store holds, printed: records, entries of a queue, index files, the checkpoint. Reads only."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from firearrow._native.audit.index import index_files
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.store.log.checkpoint import SEAL_AT, Checkpoint
from firearrow._native.store.log.record import Record
from firearrow.broker.upkeep.records import queue_entries, queue_folder

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
