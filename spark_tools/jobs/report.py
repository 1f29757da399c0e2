"""What a job did, as JSON for programs and as a table for people. Any thread."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, SliceProgress

NAMED_MAX = 1000
SHOWN_MAX = 10
ROWS_SHOWN = 50
NOTHING_LEFT = "everything is done already; use another --checkpoint to do it again"


@dataclass(slots=True)
class Report:
    job: str
    id: str
    source: str
    target: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    resumed: bool = False
    seconds: float = 0.0
    working_s: float = 0.0
    """Seconds of these in tasks that send, without the start of Spark."""
    totals: dict[str, int] = field(default_factory=dict)
    """Sums of what the slices counted: `messages`, `bytes`, `unrouted`, …; `lost` messages in
    `lost_ranges`."""
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same by source topic; `offsets`: offsets that were read."""
    lost: dict[str, int] = field(default_factory=dict)
    """Messages by requested range that no longer exists; of many ranges not all, `totals` counts them."""
    unrouted: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    verification: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        wrong = any(self.verification.get(name) for name in ("missing", "wrong", "unreadable"))
        return bool(self.failures) or wrong

    def of(self, checkpoint: Checkpoint) -> None:
        """Name the checkpoint of a job whose report was begun without it."""
        self.id, self.checkpoint, self.resumed = checkpoint.id, str(checkpoint.folder), checkpoint.resumed

    def add(self, checkpoint: Checkpoint, all_progress: Iterable[SliceProgress]) -> None:
        """Add the losses of the plan and the counts of the slices."""
        self.lost |= checkpoint.lost
        for topic, counts in checkpoint.gone.items():
            self.count(topic, counts)
        for progress in all_progress:
            slice_ = checkpoint.slices[progress.number]
            self.count(
                slice_.part.queue.topic, {**progress.counts, "offsets": progress.next - slice_.part.start}
            )
            self.lost |= progress.detail.get("lost", {})
            self.unrouted += progress.detail.get("unrouted", [])[: NAMED_MAX - len(self.unrouted)]

    def count(self, topic: str, counts: Mapping[str, int]) -> None:
        of_topic = self.topics.setdefault(topic, {})
        for name, count in counts.items():
            of_topic[name] = of_topic.get(name, 0) + count
            self.totals[name] = self.totals.get(name, 0) + count

    def write(self, file: Path) -> None:
        """InvalidOption: it cannot be written."""
        try:
            file.write_bytes(
                orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
            )
        except OSError as error:
            raise InvalidOption(f"--report: {file} cannot be written: {error.strerror}") from None

    def show(self, console: Console) -> None:
        arrow = f" → {self.target}" if self.target else ""
        console.print(f"{self.job}: {self.source}{arrow}", markup=False, highlight=False, soft_wrap=True)
        names = ["offsets", *(name for name in self.totals if name != "offsets")]
        rows = [
            (topic, [counts.get(name, 0) for name in names]) for topic, counts in sorted(self.topics.items())
        ]
        if len(rows) > 1:
            rows.append(("all", [self.totals.get(name, 0) for name in names]))
        table = Table(
            *(Column(name, justify="right" if name != "topic" else "left") for name in ("topic", *names))
        )
        for topic, numbers in rows:
            table.add_row(escape(topic), *(f"{number:,}" for number in numbers))
        console.print(table)
        if self.counts:
            console.print(self._counted())
        for line in self._lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _counted(self) -> Table:
        table = Table("topic", "tag", "hour", Column("messages", justify="right"))
        rows = [(topic, row) for topic, groups in self.counts.items() for row in groups]
        for topic, row in rows[:ROWS_SHOWN]:
            table.add_row(escape(topic), escape(row["tag"]), row["hour"], f"{row['messages']:,}")
        if len(rows) > ROWS_SHOWN:
            table.add_row("…", "", "", f"{len(rows) - ROWS_SHOWN:,} more lines are in the report")
        return table

    def _lines(self) -> Iterable[str]:
        sent = 0 if self.resumed else self.totals.get("messages", 0)
        rate = f", {sent / self.working_s:,.0f} messages/s while sending" if sent and self.working_s else ""
        yield f"{self.seconds:.1f} s{rate}"
        yield from _some("note", self.notes)
        if self.totals.get("lost_ranges"):
            yield f"lost: {self.totals['lost']:,} messages in {self.totals['lost_ranges']:,} ranges"
        yield from _some("lost", [f"{count:,} messages, {part}" for part, count in sorted(self.lost.items())])
        yield from _some("unrouted", [orjson.dumps(each).decode() for each in self.unrouted])
        yield from _some("failed", self.failures)
        if self.verification:
            yield "verified: " + ", ".join(
                f"{name} {value}" for name, value in self.verification.items() if not isinstance(value, list)
            )
            yield from _some("wrong", [str(each) for each in self.verification.get("named", [])])
        if self.failures and self.checkpoint:
            yield f"run the same command again to resume from {self.checkpoint}"


def _some(title: str, texts: Sequence[str]) -> Iterable[str]:
    for text in texts[:SHOWN_MAX]:
        yield f"{title}: {text}"
    if len(texts) > SHOWN_MAX:
        yield f"{title}: and {len(texts) - SHOWN_MAX} more, see the report"


@dataclass(slots=True)
class Watch:
    """Seconds since it was made."""

    start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.start, 3)
