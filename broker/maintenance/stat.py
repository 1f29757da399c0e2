"""A store in numbers: sizes, messages by topic and queue, times, groups with their lag, waste. Reads only.

Reads the log once, only the fixed fields of records. One thread, and the processes of the executor.
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from firearrow._native.offline.config_tables import read_object
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.files.recycled_segment import NAME as SPARE
from firearrow._native.store_checks.audit import StoreResult
from firearrow.broker.maintenance.dump import checkpoint_row, time_text
from firearrow.broker.maintenance.store_layout import StoreLayout
from firearrow.broker.maintenance.verify import VerifyOptions, verify

PARTS = (
    "commitlog",
    SPARE,
    "consumequeue",
    "batchconsumequeue",
    "compaction",
    "index",
    "config",
    "timerlog",
    "timerwheel",
    "journal",
    "checkpoint",
)
VERSIONS = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
Row = dict[str, Any]


def stat(root: str, *, jobs: int = 0, quiet: bool = True) -> Row:
    """The statistics as a JSON object. Raises StoreUnreadable, OSError."""
    root = os.path.abspath(root)
    verified = verify(root, VerifyOptions(crc=False, index=False, jobs=jobs, quiet=quiet))
    seen = verified.seen
    sizes = {name: size_of(Path(root, name)) for name in PARTS}
    log_bytes = seen.numbers["log_bytes"]
    shape = asdict(StoreLayout.of(root))
    return {
        "store": root,
        "notes": seen.state,
        "sizes": sizes,
        "log": {
            "start": seen.log.start,
            "end": seen.log.end,
            "files": seen.segments,
            "records": seen.numbers["records"],
            "recordBytes": log_bytes,
            "half": seen.numbers["half"],
            "blanks": seen.numbers["blanks"],
        },
        "waste": _waste(seen, sizes["commitlog"][1], log_bytes),
        "times": _times(seen),
        "topics": _topics(seen),
        "queues": _queues(seen),
        "groups": [{**asdict(lag), "lag": lag.lag, "gone": lag.gone} for lag in seen.lags],
        "files": {
            name: shape[name]
            for name in (
                "segment_bytes",
                "queue_file_bytes",
                "batch_queue_file_bytes",
                "index_slots",
                "index_entries",
            )
        },
        "checkpoint": checkpoint_row(root),
        "versions": _versions(root),
    }


def size_of(path: Path) -> tuple[int, int]:
    """(Length, bytes on the disk) of a file, or of all files of a folder; deleted ones count 0."""
    length = taken = 0
    paths = [path] if path.is_file() else path.rglob("*")
    for each in paths:
        try:
            about = each.stat()
        except FileNotFoundError:
            continue
        if each.is_file():
            length, taken = length + about.st_size, taken + about.st_blocks * 512
    return length, taken


def _waste(seen: StoreResult, taken: int, log_bytes: int) -> Row:
    """`unreached`: bytes of the log that are not in a record: ends of files, damage.

    `reserved`: bytes on the disk after the end of the log.
    """
    whole = seen.log.end - seen.log.start
    return {"unreached": max(0, whole - log_bytes), "reserved": max(0, taken - whole)}


def _times(seen: StoreResult) -> Row:
    spans = list(seen.counts.times.values())
    first, last = (
        min((each[0] for each in spans), default=None),
        max((each[1] for each in spans), default=None),
    )
    return {"first": first, "last": last}


def _topics(seen: StoreResult) -> list[Row]:
    rows = seen.counts.topics().rows.items()
    ordered = sorted(rows, key=lambda row: (-row[1][1], row[0]))
    return [{"topic": key[0], "messages": messages, "bytes": size} for key, (messages, size) in ordered]


def _queues(seen: StoreResult) -> list[Row]:
    return [
        {
            "topic": row.topic,
            "queueId": row.queue_id,
            "first": row.first,
            "end": row.end,
            "messages": row.messages,
            "bytes": row.bytes,
            "firstTimestamp": row.first_ms,
            "lastTimestamp": row.last_ms,
        }
        for row in seen.queue_rows()
    ]


def _versions(root: str) -> Row:
    """The dataVersion of each config file; None if the file is unreadable or has none."""
    found: Row = {}
    for name in VERSIONS:
        try:
            version = read_object(Path(root, "config", name)).get("dataVersion")
        except StoreUnreadable:
            version = None
        found[name] = version if isinstance(version, dict) else None
    return found


def lines(statistics: Row) -> list[str]:
    """The statistics as lines for people."""
    log, times, waste = statistics["log"], statistics["times"], statistics["waste"]
    output = [
        f"{statistics['store']}: {log['records']} records, "
        f"log {log['start']} to {log['end']} in {log['files']} files"
    ]
    output += [f"  note: {note}" for note in statistics["notes"]]
    if times["first"] is not None:
        output.append(f"  stored from {time_text(times['first'])} to {time_text(times['last'])}")
    for name, (length, taken) in statistics["sizes"].items():
        output.append(f"  {name:<14} {length / 1e6:>12.1f} MB, {taken / 1e6:.1f} MB on disk")
    output.append(
        f"  not in a record: {waste['unreached']} bytes, reserved after the end: {waste['reserved']} bytes"
    )
    output.append("  topic, messages, bytes")
    output += [f"  {row['topic']}  {row['messages']}  {row['bytes']}" for row in statistics["topics"]]
    output.append("  queue: first to end, messages in the log")
    for row in statistics["queues"]:
        output.append(f"  {row['topic']}:{row['queueId']}  {row['first']} to {row['end']}  {row['messages']}")
    if statistics["groups"]:
        output.append("  group, queue: offset of end, lag")
    for row in statistics["groups"]:
        output.append(
            f"  {row['group']}  {row['topic']}:{row['queue_id']}  "
            f"{row['offset']} of {row['end']}  {row['lag']}"
        )
    return output
