"""Filters of PyArrow and Polars narrow what is read, and never drop a row that matches."""

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.tables.polars_scan import pushdown_of_polars
from firearrow.spark_tools.tables.predicates import columns_in, pushdown_of

WHEN = datetime(2026, 11, 20, 8, 0, 0, 1000, UTC)
MS = int(WHEN.timestamp() * 1000)
TIME = pa.scalar(WHEN, pa.timestamp("us", "UTC"))
TAG, QUEUE, OFFSET, STORED = map(pc.field, ("tags", "queueId", "queueOffset", "storeTimestamp"))
NASTY = ('a"b', "a\\b", "a) and (queueId == 1", "a\nb", "ü", "a and b", "...", "")


def narrowed(found: Pushdown) -> dict[str, Any]:
    return {
        name: getattr(found, name)
        for name in Pushdown.__slots__
        if getattr(found, name) != getattr(Pushdown(), name)
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (TAG == "A", {"tags": {"A"}}),
        ((TAG == "A") & (QUEUE > 3), {"tags": {"A"}, "queue_id_span": (4, None)}),
        ((STORED >= TIME) & ((STORED < TIME) & (TAG == "A")), {"stored": (MS, MS), "tags": {"A"}}),
        (QUEUE.isin([1, 5]), {"queue_ids": {1, 5}}),
        (pc.if_else(QUEUE.is_valid(), QUEUE.isin([1]), pa.scalar(None, pa.bool_())), {"queue_ids": {1}}),
        (TAG.isin(["A", "B c"]), {"tags": {"A", "B c"}}),
        (TAG.is_valid() & (OFFSET <= 9), {"offset_span": (None, 10)}),
        ((TAG == "A") | (TAG == "B"), {}),
        (~(TAG == "A"), {}),
        (pc.starts_with(TAG, "A"), {}),
        (QUEUE.isin(list(range(50))), {}),
        (pc.field("keys") == TAG, {}),
        (OFFSET == OFFSET + 1, {}),
    ],
)
def test_an_expression_of_arrow_narrows(expression: pc.Expression, expected: dict[str, Any]) -> None:
    assert narrowed(pushdown_of(expression)) == expected


@pytest.mark.parametrize("text", NASTY)
def test_texts_are_taken_as_they_are_or_not_at_all(text: str) -> None:
    for expression in (text == TAG, TAG.isin([text]), (text == TAG) & (QUEUE == 2)):
        found = narrowed(pushdown_of(expression))
        assert found.pop("tags", {text}) == {text}
        assert found in ({}, {"queue_ids": {2}})
    found = narrowed(pushdown_of_polars((pl.col("tags") == text) & (pl.col("queueId") == 2)))
    assert found == {"tags": {text}, "queue_ids": {2}}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (pl.col("tags") == "A", {"tags": {"A"}}),
        (pl.lit(3) < pl.col("queueId"), {"queue_id_span": (4, None)}),
        ((pl.col("queueOffset") >= 3) & (pl.col("queueOffset") < 7), {"offset_span": (3, 7)}),
        (pl.col("storeTimestamp") <= WHEN, {"stored": (None, MS + 1)}),
        (pl.col("queueId").is_in([1, 5]), {"queue_ids": {1, 5}}),
        (pl.col("tags").is_in(["A", None], nulls_equal=True), {}),
        (pl.col("topic").str.starts_with("Or"), {"topic_prefix": "Or"}),
        ((pl.col("tags") == "A") | (pl.col("tags") == "B"), {}),
        (~(pl.col("tags") == "A"), {}),
        (pl.col("queueId") + 1 == 3, {}),
        (pl.col("tags") == pl.col("keys"), {}),
        (pl.col("tags").is_null(), {}),
        (pl.col("body").len() > 3, {}),
    ],
)
def test_an_expression_of_polars_narrows(predicate: pl.Expr, expected: dict[str, Any]) -> None:
    assert narrowed(pushdown_of_polars(predicate)) == expected


def test_columns_of_an_expression() -> None:
    assert columns_in((TAG == "x") & (QUEUE == 1), ("queueId", "body", "tags")) == ["queueId", "tags"]


@given(st.text(), st.text())
def test_no_text_widens_or_bends_the_filter(one: str, other: str) -> None:
    try:
        expression = (one == TAG) & (pc.field("uniqKey") == other)
        shown = str(expression)
    except (UnicodeError, pa.ArrowException):
        return
    found = narrowed(pushdown_of(expression))
    assert found.get("tags", {one}) == {one}, shown
    assert found.get("unique_ids", {other}) == {other}, shown
    assert set(found) <= {"tags", "unique_ids"}
