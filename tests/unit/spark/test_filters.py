"""Spark's filters narrow what is read, and never drop a row that matches."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.filters import pushdown_of
from firearrow.spark_tools.plan.pushdown import CLOCK_SLACK_MS, Pushdown
from tests.spark.fakes import FakeLog, queue_of

WHEN = datetime(2026, 11, 20, 8, 0, 0, 1500, UTC)
MS = 1_795_161_600_001
HALF = WHEN.replace(microsecond=1500)
WHOLE = WHEN.replace(microsecond=1000)


def equal(column: str, value: object) -> Filter:
    return EqualTo((column,), value)


@pytest.mark.parametrize(
    ("filters", "field", "value"),
    [
        ([equal("topic", "A")], "topics", {"A"}),
        ([EqualNullSafe(("topic",), "A")], "topics", {"A"}),
        ([In(("topic",), ("A", "B", None))], "topics", {"A", "B"}),
        ([In(("topic",), ("A", "B")), equal("topic", "B")], "topics", {"B"}),
        ([StringStartsWith(("topic",), "Or")], "topic_prefix", "Or"),
        (
            [StringStartsWith(("topic",), "Or"), StringStartsWith(("topic",), "Order")],
            "topic_prefix",
            "Order",
        ),
        ([equal("queueId", 3)], "queue_ids", {3}),
        ([GreaterThan(("queueId",), 3), LessThanOrEqual(("queueId",), 7)], "queue_id_span", (4, 8)),
        ([In(("queueOffset",), (5, 9))], "offsets", {5, 9}),
        ([GreaterThanOrEqual(("queueOffset",), 3), LessThan(("queueOffset",), 7)], "offset_span", (3, 7)),
        ([GreaterThan(("queueOffset",), 3), GreaterThan(("queueOffset",), 9)], "offset_span", (10, None)),
        ([equal("tags", "t")], "tags", {"t"}),
        ([equal("uniqKey", "u")], "unique_ids", {"u"}),
        ([equal("keys", "k1 k2")], "keys", {"k1"}),
        ([In(("keys",), ("a b", "c"))], "keys", {"a", "c"}),
        ([GreaterThanOrEqual(("storeTimestamp",), WHOLE)], "stored", (MS, None)),
        ([GreaterThanOrEqual(("storeTimestamp",), HALF)], "stored", (MS + 1, None)),
        ([GreaterThan(("storeTimestamp",), WHOLE)], "stored", (MS + 1, None)),
        ([GreaterThan(("storeTimestamp",), HALF)], "stored", (MS + 1, None)),
        ([LessThan(("storeTimestamp",), WHOLE)], "stored", (None, MS)),
        ([LessThan(("storeTimestamp",), HALF)], "stored", (None, MS + 1)),
        ([LessThanOrEqual(("storeTimestamp",), WHOLE)], "stored", (None, MS + 1)),
        ([LessThanOrEqual(("storeTimestamp",), HALF)], "stored", (None, MS + 1)),
        ([equal("storeTimestamp", WHOLE)], "stored", (MS, MS + 1)),
        ([equal("bornTimestamp", WHOLE.astimezone(timezone(timedelta(hours=5))))], "born", (MS, MS + 1)),
        ([equal("bornTimestamp", WHOLE.replace(tzinfo=None))], "born", (MS, MS + 1)),
        ([In(("bornTimestamp",), (WHOLE, WHOLE + timedelta(seconds=1)))], "born", (MS, MS + 1001)),
    ],
)
def test_a_filter_narrows(filters: list[Filter], field: str, value: object) -> None:
    found = pushdown_of(filters)
    assert getattr(found, field) == (frozenset(value) if isinstance(value, set) else value)
    assert sum(getattr(found, name) != getattr(Pushdown(), name) for name in Pushdown.__slots__) == 1
    assert Pushdown.of_json(found.to_json()) == found


@pytest.mark.parametrize(
    "each",
    [
        IsNotNull(("topic",)),
        Not(equal("topic", "A")),
        StringContains(("topic",), "A"),
        StringStartsWith(("tags",), "A"),
        equal("body", b"x"),
        EqualTo(("properties", "a"), "x"),
        equal("topic", "\N{REPLACEMENT CHARACTER}"),
        StringStartsWith(("topic",), "a\N{REPLACEMENT CHARACTER}"),
        equal("keys", ""),
        equal("keys", " k"),
        equal("queueId", 1.5),
        equal("queueId", True),
        equal("topic", 5),
        GreaterThan(("queueOffset",), (1 << 63) - 1),
        GreaterThan(("topic",), "A"),
        EqualNullSafe(("bornTimestamp",), None),
    ],
)
def test_what_is_not_understood_narrows_nothing(each: Filter) -> None:
    assert pushdown_of([each]) == Pushdown()


@pytest.mark.parametrize(
    "filters",
    [
        [equal("topic", "A"), equal("topic", "B")],
        [equal("topic", None)],
        [In(("tags",), ())],
        [StringStartsWith(("topic",), "A"), StringStartsWith(("topic",), "B")],
        [GreaterThan(("queueOffset",), 5), LessThan(("queueOffset",), 6)],
        [equal("storeTimestamp", HALF)],
    ],
)
def test_what_excludes_each_other_lets_nothing_through(filters: list[Filter]) -> None:
    found = pushdown_of(filters)
    assert found.nothing()
    assert found.queues([queue_of(0, "A")]) == []
    assert found.message_filter(MessageFilter()) is None


def test_queues_are_left_out() -> None:
    queues = [queue_of(index, topic) for topic in ("A", "B", "Ba") for index in range(4)]

    def left(*filters: Filter) -> set[str]:
        return {f"{queue.topic}{queue.queue_id}" for queue in pushdown_of(filters).queues(queues)}

    assert left(equal("topic", "B"), GreaterThan(("queueId",), 1)) == {"B2", "B3"}
    assert left(StringStartsWith(("topic",), "B"), In(("queueId",), (0, 9))) == {"B0", "Ba0"}


def test_offsets_are_left_out_with_care_for_clocks() -> None:
    log, queue = FakeLog(), queue_of()
    for minute in range(10):
        log.add(queue, 10, stored_ms=minute * 60_000)
    whole = QueueRange(queue, 0, 100)

    def left(**pushdown: Any) -> tuple[int, int]:  # noqa: ANN401
        part = Pushdown(**pushdown).range(whole, log)
        return part.start, part.end

    assert CLOCK_SLACK_MS == 60_000
    assert left() == (0, 100)
    assert left(offset_span=(5, 200)) == (5, 100)
    assert left(offsets=frozenset({7, 30})) == (7, 31)
    assert left(offsets=frozenset({7, 30}), offset_span=(10, None)) == (10, 31)
    assert left(stored=(180_000, 300_000)) == (20, 60)
    assert left(stored=(0, None)) == (0, 100)
    assert left(stored=(9_000_000, None)) == (100, 100)
    assert left(offset_span=(300, None)) == (300, 300)


def test_a_choice_gets_narrower() -> None:
    given = MessageFilter(tags=frozenset("AB"), stored=(10, None), sql="a = 1")
    narrowed = Pushdown(tags=frozenset("BC"), stored=(5, 20), unique_ids=frozenset("u")).message_filter(given)
    assert narrowed == MessageFilter(
        tags=frozenset("B"), stored=(10, 20), unique_ids=frozenset("u"), sql="a = 1"
    )
    assert Pushdown(tags=frozenset("C")).message_filter(given) is None
    assert Pushdown(stored=(None, 10)).message_filter(given) is None
    assert Pushdown().message_filter(given) == given


def test_keys_that_were_asked_for_stay_as_they_are() -> None:
    assert Pushdown(keys=frozenset("x")).message_filter(MessageFilter(keys=frozenset("y"))) == MessageFilter(
        keys=frozenset("y")
    )
    assert Pushdown(keys=frozenset("x")).message_filter(MessageFilter()) == MessageFilter(keys=frozenset("x"))


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"topic": []}',
        '{"topics": "A"}',
        '{"topics": [1]}',
        '{"offsets": ["1"]}',
        '{"offsets": [true]}',
        '{"stored": [1]}',
        '{"stored": [1, "2"]}',
        '{"topic_prefix": null}',
    ],
)
def test_only_what_was_written_is_read_back(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|valid JSON"):
        Pushdown.of_json(text)
