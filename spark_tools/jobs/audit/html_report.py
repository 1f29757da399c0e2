"""An audit as one self-contained HTML file without scripts; dark or light as the browser is set.

Charts are inline SVG: bars over time, and bars by name. Every name is escaped: topics, tags and groups come
from outside.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from firearrow._native.store_checks.audit import QueueRow, StoreResult
from firearrow._native.store_checks.top_counts import TopCounts
from firearrow.spark_tools.jobs.audit.summary import topic_rows

WIDTH, HEIGHT = 920, 220
LEFT, BOTTOM, TOP = 64, 24, 10
ROW = 24
NAME_WIDTH = 300
NAME_CHARS = 44
BAR_MAX = 48.0


def shortened(number: float) -> str:
    """With a letter for thousands, millions, …"""
    for letter in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000:
            return (
                f"{number:.0f}{letter}" if number == int(number) or letter == "" else f"{number:.1f}{letter}"
            )
        number /= 1000
    return f"{number:.0f}E"


def over_time(points: Sequence[tuple[str, int, str]], label: str) -> str:
    """Bars in the points' order: (name of the time, height, text to be shown)."""
    high = max((height for _, height, _ in points), default=0) or 1
    inner, plot_height = WIDTH - LEFT, HEIGHT - BOTTOM - TOP
    step = inner / max(1, len(points))
    width = min(BAR_MAX, max(0.8, step * 0.85))
    bars = []
    for n, (_, height, text) in enumerate(points):
        tall = plot_height * height / high
        bars.append(
            f'<rect class="bar" x="{LEFT + n * step:.1f}" y="{TOP + plot_height - tall:.1f}" width="{width:.1f}" '
            f'height="{tall:.1f}"><title>{escape(text)}</title></rect>'
        )
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + plot_height * (1 - share)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shortened(high * share)}</text>'
        )
    every = max(1, len(points) // 6)
    names = []
    for n in range(0, len(points), every):
        x = LEFT + (n + 0.4) * step
        if x < WIDTH - 30:
            text = escape(points[n][0])
            names.append(
                f'<text class="axis" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>'
            )
    return _svg(HEIGHT, label, [*lines, *bars, *names])


def by_name(rows: Sequence[tuple[str, int, str]], label: str) -> str:
    """One bar for each row: (name, length, label)."""
    high = max((length for _, length, _ in rows), default=0) or 1
    plot_width = WIDTH - NAME_WIDTH - 150
    parts = []
    for n, (name, length, text) in enumerate(rows):
        shown = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
        y, width = n * ROW, max(1.0, plot_width * length / high)
        parts.append(
            f'<text class="name" x="{NAME_WIDTH - 8}" y="{y + 16}" text-anchor="end">{escape(shown)}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar" x="{NAME_WIDTH}" y="{y + 4}" width="{width:.1f}" height="{ROW - 9}" rx="2"/>'
            f'<text class="axis" x="{NAME_WIDTH + width + 6:.1f}" y="{y + 16}">{escape(text)}</text>'
        )
    return _svg(max(ROW, ROW * len(rows)), label, parts)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


BARS_MAX = 20
POINTS_MAX = 200
FINDINGS_MAX = 500
HOUR_MS = 3_600_000
YEAR_MIN_MS, YEAR_MAX_MS = 0, 253_402_300_799_000
STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --dim: #667085; --line: #d9dee7; --back: #fbfcfe; --card: #fff;
  --bar: #3b6fd4; --good: #1a7f4b; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --line: #333b4a; --back: #12161d;
  --card: #1a202a; --bar: #6f9cf0; --good: #4cc38a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 32px 20px 80px; color: var(--ink); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0; } h2 { margin: 48px 0 4px; font-size: 21px; }
h3 { margin: 32px 0 8px; font-size: 16px; }
.dim { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 5px 10px; text-align: left; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child th { border-top: 0; } th { color: var(--dim); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 70px; }
svg { width: 100%; height: auto; display: block; margin: 6px 0; }
.bar { fill: var(--bar); } .grid { stroke: var(--line); }
.axis { fill: var(--dim); font: 11px system-ui, sans-serif; }
.name { fill: var(--ink); font: 12px system-ui, sans-serif; }
"""


def page(stores: Sequence[StoreResult], top: int, duplicates: str | None) -> str:
    """The whole file. `duplicates`: a sentence, if they were counted."""
    wrong = sum(seen.findings.totals.total() for seen in stores)
    verdict = (
        f'<span class="bad">{wrong:,} findings</span>' if wrong else '<span class="good">no findings</span>'
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Audit</title><style>{STYLE}</style><h1>Audit: {verdict}</h1>",
        f'<p class="dim">{len(stores)} {"store" if len(stores) == 1 else "stores"}, '
        f"made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>",
    ]
    if duplicates is not None:
        parts.append(f"<p>{escape(duplicates)}</p>")
    for seen in stores:
        parts += _store(seen, top)
    return "\n".join(parts) + "\n</html>\n"


def _store(seen: StoreResult, top: int) -> Iterable[str]:
    yield f'<h2>{escape(seen.store.name)}</h2><p class="dim">{escape(seen.store.root)}</p>'
    for line in seen.state:
        yield f"<p>Note: {escape(line)}</p>"
    yield _tiles(seen)
    yield from _findings(seen)
    yield from _charts(seen)
    yield from _tables(seen, top)


def _tiles(seen: StoreResult) -> str:
    numbers = seen.numbers
    tiles = {
        "records": numbers["records"],
        "bytes of records": numbers["log_bytes"],
        "segments": seen.segments,
        "topics": len({topic for topic, _ in seen.queues}),
        "queues": len(seen.queues),
        "index entries": numbers["index entries"],
        "prepared or rolled back": numbers["half"],
        "findings": seen.findings.totals.total(),
    }
    shown = (
        f'<div class="tile"><b title="{value:,}">{shortened(value)}</b>{name}</div>'
        for name, value in tiles.items()
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def _findings(seen: StoreResult) -> Iterable[str]:
    if not seen.findings:
        return
    totals = seen.findings.totals
    yield "<h3>Findings</h3>"
    yield by_name([(kind, count, f"{count:,}") for kind, count in totals.most_common()], "findings by kind")
    listed = seen.findings.ordered()
    yield _table(
        ("kind", "file", "#position", "what", "#count"),
        [
            (
                str(each.kind),
                each.where.file,
                f"{each.where.position:,}",
                each.text,
                f"{each.where.count:,}",
            )
            for each in listed[:FINDINGS_MAX]
        ],
    )
    if len(listed) > FINDINGS_MAX:
        yield f'<p class="dim">{len(listed) - FINDINGS_MAX:,} more are in findings.parquet</p>'


def _charts(seen: StoreResult) -> Iterable[str]:
    points = _points(seen.counts.hours)
    if points:
        yield f"<h3>Messages by {'hour' if len(seen.counts.hours.rows) <= POINTS_MAX else 'time'}, UTC</h3>"
        yield over_time(points, "messages over time")
    topics = topic_rows(seen)
    rows = [
        (row.topic, row.bytes, f"{shortened(row.bytes)}B, {row.messages:,}")
        for row in topics[:BARS_MAX]
        if row.bytes
    ]
    if rows:
        yield f"<h3>Bytes by topic</h3>{by_name(rows, 'bytes by topic')}"
    for title, tally in (("tag", seen.counts.tags), ("producer host", seen.counts.hosts)):
        busiest = tally.busiest(BARS_MAX)
        if busiest:
            named = [(" · ".join(map(str, key)), count, f"{count:,}") for key, count, _ in busiest]
            yield f"<h3>Messages by {title}</h3>{by_name(named, f'messages by {title}')}"
            if tally.pruned:
                yield '<p class="dim">There were more names than are kept: counts are lower bounds.</p>'
    lag_by_group: dict[str, int] = {}
    for lag in seen.lags:
        lag_by_group[lag.group] = lag_by_group.get(lag.group, 0) + lag.lag
    late = sorted(((group, count) for group, count in lag_by_group.items() if count), key=lambda row: -row[1])
    if late:
        yield "<h3>Lag of groups, messages</h3>"
        yield by_name([(group, count, f"{count:,}") for group, count in late[:BARS_MAX]], "lag by group")


def _points(hours: TopCounts) -> list[tuple[str, int, str]]:
    """One point for each hour, or for several hours if there would be more than POINTS_MAX."""
    messages_by_hour = {
        int(key[0]): row[0]
        for key, row in hours.rows.items()
        if YEAR_MIN_MS <= int(key[0]) * HOUR_MS < YEAR_MAX_MS
    }
    if not messages_by_hour:
        return []
    first, last = min(messages_by_hour), max(messages_by_hour)
    step = (last - first) // POINTS_MAX + 1
    sums: dict[int, int] = {}
    for hour, messages in messages_by_hour.items():
        sums[(hour - first) // step] = sums.get((hour - first) // step, 0) + messages
    points = []
    for n in range((last - first) // step + 1):
        begin = datetime.fromtimestamp((first + n * step) * 3600, UTC)
        points.append((f"{begin:%m-%d %H}h", sums.get(n, 0), f"{begin:%Y-%m-%d %H:%M}: {sums.get(n, 0):,}"))
    return points


def _tables(seen: StoreResult, top: int) -> Iterable[str]:
    yield "<h3>Topics</h3>"
    yield _table(
        ("topic", "kind", "#queues", "#messages", "#bytes"),
        [
            (row.topic, row.kind, f"{row.queues:,}", f"{row.messages:,}", f"{row.bytes:,}")
            for row in topic_rows(seen)[:top]
        ],
    )
    yield "<h3>Queues</h3>"
    busiest = sorted(seen.queue_rows(), key=lambda row: (-row.bytes, row.topic, row.queue_id))
    yield _table(
        ("topic", "#queue", "#first", "#end", "#messages in the log", "#bytes", "last stored"),
        [_queue(row) for row in busiest[:top]],
    )
    if seen.lags:
        yield "<h3>Groups</h3>"
        late = sorted(seen.lags, key=lambda lag: (-lag.lag, lag.group, lag.topic, lag.queue_id))
        yield _table(
            ("group", "topic", "#queue", "#offset", "#end", "#lag", "#gone before"),
            [
                (
                    lag.group,
                    lag.topic,
                    str(lag.queue_id),
                    *(f"{n:,}" for n in (lag.offset, lag.end, lag.lag, lag.gone)),
                )
                for lag in late[:top]
            ],
        )


def _queue(row: QueueRow) -> tuple[str, ...]:
    counts = (row.first, row.end, row.messages, row.bytes)
    return row.topic, str(row.queue_id), *map(_number, counts), _time(row.last_ms)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A head with # is of numbers."""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]
    head = "".join(
        f"<th{kind}>{escape(name.lstrip('#'))}</th>" for kind, name in zip(kinds, heads, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _time(ms: int | None) -> str:
    if ms is None or not YEAR_MIN_MS <= ms < YEAR_MAX_MS:
        return ""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
