"""The audit as a page: one file that loads nothing, runs nothing, and shows every name as text."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.audit import SerialExecutor, StoreAudit, StoreResult
from firearrow._native.store_checks.findings import Extent, Kind
from firearrow._native.store_checks.groups import GroupLag
from firearrow._native.store_checks.queues import QueueResult
from firearrow.spark_tools.jobs.audit.html_report import by_name, over_time, page, shortened
from firearrow.spark_tools.jobs.audit.summary import document, kind_of, topic_rows
from tests.spark.stores import Golden

EVIL = "<script>alert('\"&x')</script>"
VOID = frozenset({"meta"})
OPTIONAL = frozenset({"html"})


class Reader(HTMLParser):
    """All text and tags; every element that was opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def evil() -> StoreResult:
    """A store in which every name that comes from outside is markup."""
    seen = StoreResult(StoreFolder(EVIL, f"/stores/{EVIL}"), state=[EVIL])
    seen.counts.queues.add((EVIL, 0), 7, 700)
    seen.counts.tags.add((EVIL, EVIL), 7, 700)
    seen.counts.hosts.add((EVIL,), 7, 700)
    seen.counts.hours.add((475_000,), 7, 700)
    seen.counts.times[EVIL, 0] = (1_710_000_000_000, 1_710_000_000_001)
    seen.queues[EVIL, 0] = QueueResult(0, 7, 7, 0)
    seen.lags = [GroupLag(EVIL, EVIL, 0, 1, 0, 7)]
    seen.findings.add(Kind.BAD_CRC.finding(Extent(EVIL, f"/stores/{EVIL}", 5), EVIL))
    return seen


def test_names_from_outside_are_text(evil: StoreResult) -> None:
    html = page([evil], 10, EVIL)
    read = Reader(html)
    assert "script" not in read.tags
    assert sum(EVIL in text for text in read.texts) >= 10
    assert not read.open


def test_the_page_loads_and_runs_nothing(golden: Golden) -> None:
    seen = StoreAudit(StoreFolder("a", str(golden.root)), SerialExecutor()).run()
    html = page([seen], 50, None)
    read = Reader(html)
    assert not read.tags & {"script", "link", "img", "iframe", "object", "embed", "use", "image"}
    assert not {name for name in read.attributes if name.startswith("on")} | (
        read.attributes & {"src", "href", "style"}
    )
    assert not re.search(r"https?:|url\(|@import", html)
    assert "prefers-color-scheme: dark" in html
    assert not read.open


def test_the_page_shows_what_was_seen(golden: Golden) -> None:
    seen = StoreAudit(StoreFolder("a", str(golden.root)), SerialExecutor()).run()
    texts = Reader(page([seen], 1000, None)).texts
    assert "no findings" in texts
    for row in topic_rows(seen):
        assert row.topic in texts
        assert f"{row.messages:,}" in texts
    assert {lag.group for lag in seen.lags} <= set(texts)


def test_findings_are_counted_and_named_on_the_page(evil: StoreResult) -> None:
    texts = Reader(page([evil], 10, None)).texts
    assert "1 findings" in texts
    assert "bad CRC" in texts


def test_the_document_has_the_same_numbers(evil: StoreResult, tmp_path: Path) -> None:
    data = document([evil], 10, 1.5)
    assert data["clean"] is False
    [store] = data["stores"]
    assert store["findings"]["totals"] == {"bad CRC": 1}
    assert store["findings"]["listed"][0]["position"] == 5
    assert store["topics"] == [{"topic": EVIL, "kind": "messages", "queues": 1, "messages": 7, "bytes": 700}]
    assert store["lag"][0]["lag"] == 6
    assert store["hours"]["rows"] == [{"hour": "2024-03-09T16:00Z", "messages": 7, "bytes": 700}]


def test_only_the_busiest_are_named_and_the_rest_is_counted(evil: StoreResult) -> None:
    for number in range(20):
        evil.counts.tags.add((EVIL, f"tag {number}"), number, 10)
    tags = document([evil], 5, 0.0)["stores"][0]["tags"]
    assert [row["messages"] for row in tags["rows"]] == [19, 18, 17, 16, 15]
    assert tags["rest"]["messages"] == sum(range(15)) + 7


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", "messages"), ("%RETRY%g", "retry"), ("%DLQ%g", "dead letters"), ("%LMQ%x", "light"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "half"), ("SCHEDULE_TOPIC_XXXX", "system"), ("rmq_sys_wheel_timer", "system"),
    ],
)  # fmt: skip
def test_topics_are_distinguished(topic: str, kind: str) -> None:
    assert kind_of(topic) == kind


def heights(svg: str) -> Iterator[float]:
    for match in re.finditer(r'<rect class="bar"[^>]* height="([\d.]+)"', svg):
        yield float(match[1])


def test_bars_are_as_high_as_their_numbers() -> None:
    svg = over_time([("a", 10, "ten"), ("b", 5, "five"), ("c", 0, "none")], "x")
    ten, five, none = heights(svg)
    assert ten == pytest.approx(2 * five, abs=0.2)
    assert none == 0
    widths = [
        float(match)
        for match in re.findall(r'width="([\d.]+)" height="15"', by_name([("a", 8, ""), ("b", 2, "")], "x"))
    ]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.5)


def test_charts_of_nothing_are_charts() -> None:
    for svg in (over_time([], "nothing"), by_name([], "nothing")):
        assert not Reader(svg).open
        assert not list(heights(svg))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1500, "1.5k"), (2_400_000, "2.4M"), (10**15, "1P")],
)
def test_large_numbers_are_shortened(number: int, text: str) -> None:
    assert shortened(number) == text
