"""An audit's results as rows for tables, HTML and JSON. Opens no file and no session."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from firearrow._native.protocol.name_rules import is_system_topic
from firearrow._native.store_checks.audit import StoreResult
from firearrow._native.store_checks.findings import as_row
from firearrow._native.store_checks.top_counts import TopCounts
from firearrow.client.base.names import DLQ, RETRY
from firearrow.spark_tools.base.source import LMQ_PREFIX

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HOURS_MAX = 70_389_528
"""The year 10000."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`kind`: messages, retry, dead letters, light, half (prepared transactions) or system."""

    topic: str
    kind: str
    queues: int
    messages: int
    bytes: int


def kind_of(topic: str) -> str:
    if topic == HALF_TOPIC:
        return "half"
    if is_system_topic(topic):
        return "system"
    prefixes = {RETRY: "retry", DLQ: "dead letters", LMQ_PREFIX: "light"}
    return next((kind for prefix, kind in prefixes.items() if topic.startswith(prefix)), "messages")


def topic_rows(seen: StoreResult) -> list[TopicRow]:
    """Most bytes first."""
    queues: dict[str, int] = {}
    for topic, _ in seen.queue_names():
        queues[topic] = queues.get(topic, 0) + 1
    counted = seen.counts.topics().rows
    rows = [
        TopicRow(topic, kind_of(topic), count, *counted.get((topic,), (0, 0)))
        for topic, count in queues.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.topic))


def document(stores: Iterable[StoreResult], top: int, seconds: float) -> dict[str, Any]:
    """The report as JSON: all findings that are listed, the `top` busiest of everything else."""
    parts = [_store(seen, top) for seen in stores]
    return {
        "job": "audit",
        "clean": all(part["clean"] for part in parts),
        "seconds": seconds,
        "stores": parts,
    }


def _store(seen: StoreResult, top: int) -> dict[str, Any]:
    tallies = seen.counts
    busy = sorted(seen.queue_rows(), key=lambda row: (-row.messages, row.topic, row.queue_id))
    late = sorted(seen.lags, key=lambda lag: (-lag.lag, lag.group, lag.topic, lag.queue_id))
    return {
        "name": seen.store.name,
        "folder": seen.store.root,
        "clean": not seen.findings,
        "state": seen.state,
        "seconds": round(seen.seconds, 3),
        "segments": seen.segments,
        "log": {"start": seen.log.start, "end": seen.log.end},
        "numbers": dict(sorted(seen.numbers.items())),
        "findings": {
            "totals": dict(seen.findings.totals),
            "listed": [as_row(each) for each in seen.findings.ordered()],
        },
        "topics": [asdict(row) for row in topic_rows(seen)[:top]],
        "queues": [asdict(row) for row in busy[:top]],
        "tags": _tally(tallies.tags, ("topic", "tag"), top),
        "hours": _hours(tallies.hours),
        "hosts": _tally(tallies.hosts, ("host",), top),
        "lag": [{**asdict(lag), "lag": lag.lag, "gone": lag.gone} for lag in late[:top]],
    }


def _hours(tally: TopCounts) -> dict[str, Any]:
    """Counts by hour; each hour as text."""
    table = _tally(tally, ("hour",), 0)
    for row in table["rows"]:
        row["hour"] = hour_text(row["hour"])
    return table


def hour_text(hour: int) -> str:
    """ISO 8601, from hours since 1970."""
    if not 0 <= hour < HOURS_MAX:
        return f"hour {hour}"
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%dT%H:00Z}"


def _tally(tally: TopCounts, names: tuple[str, ...], top: int) -> dict[str, Any]:
    """`top` 0: all, by key."""
    rows = tally.busiest(top) if top else sorted((key, row[0], row[1]) for key, row in tally.rows.items())
    all_messages = sum(row[0] for row in tally.rows.values()) + tally.rest[0]
    all_bytes = sum(row[1] for row in tally.rows.values()) + tally.rest[1]
    return {
        "rows": [
            {**dict(zip(names, key, strict=True)), "messages": messages, "bytes": size}
            for key, messages, size in rows
        ],
        "rest": {
            "messages": all_messages - sum(messages for _, messages, _ in rows),
            "bytes": all_bytes - sum(size for _, _, size in rows),
        },
        "lower_bounds": tally.pruned,
    }
