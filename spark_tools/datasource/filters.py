"""Translates Spark's filters to a Pushdown. Pure functions.

Spark applies all filters again, which costs nanoseconds a row. So the Pushdown may let too many rows through,
but never drops a matching one.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from firearrow.spark_tools.plan.pushdown import Pushdown, Span, span_and

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1


def pushdown_of(filters: Iterable[Filter]) -> Pushdown:
    """The Pushdown of all filters together."""
    found = Pushdown()
    for each in filters:
        found = _pushed(found, each)
    return found


def _pushed(found: Pushdown, each: Filter) -> Pushdown:
    match each:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return _one_of(found, column, (value,))
        case In((column,), values):
            return _one_of(found, column, values)
        case StringStartsWith(("topic",), str(prefix)) if _exact(prefix):
            longer, shorter = sorted((prefix, found.topic_prefix), key=len, reverse=True)
            return (
                replace(found, topic_prefix=longer)
                if longer.startswith(shorter)
                else replace(found, topics=frozenset())
            )
        case GreaterThan((column,), value):
            return _with_span(found, column, value, lambda ticks: (ticks + 1, None))
        case GreaterThanOrEqual((column,), value):
            return _with_span(found, column, value, lambda ticks: (ticks, None))
        case LessThan((column,), value):
            return _with_span(found, column, value, lambda ticks: (None, ticks))
        case LessThanOrEqual((column,), value):
            return _with_span(found, column, value, lambda ticks: (None, ticks + 1))
    return found


def _one_of(found: Pushdown, column: str, values: Iterable[Any]) -> Pushdown:
    """Null equals nothing. A value of another type changes nothing."""
    values = [value for value in values if value is not None]
    match column:
        case "topic" if _texts(values):
            return replace(found, topics=_both(found.topics, values))
        case "tags" if _texts(values):
            return replace(found, tags=_both(found.tags, values))
        case "uniqKey" if _texts(values):
            return replace(found, unique_ids=_both(found.unique_ids, values))
        case "keys" if _texts(values) and all(value.split(" ")[0] for value in values):
            return replace(found, keys=_both(found.keys, [value.split(" ")[0] for value in values]))
        case "queueId" if _numbers(values):
            return replace(found, queue_ids=_both(found.queue_ids, values))
        case "queueOffset" if _numbers(values):
            return replace(found, offsets=_both(found.offsets, values))
        case "storeTimestamp" | "bornTimestamp" if values and all(
            isinstance(each, datetime) for each in values
        ):
            found = _with_span(found, column, min(values), lambda ticks: (ticks, None))
            return _with_span(found, column, max(values), lambda ticks: (None, ticks + 1))
    return found


def _with_span(found: Pushdown, column: str, value: object, span: Callable[[int], Span]) -> Pushdown:
    """`span` gets the value in the column's unit: a number, or a time in microseconds."""
    match column:
        case "queueId" if _numbers([value]):
            return replace(found, queue_id_span=span_and(found.queue_id_span, span(_number(value))))
        case "queueOffset" if _numbers([value]):
            return replace(found, offset_span=span_and(found.offset_span, span(_number(value))))
        case "storeTimestamp" if isinstance(value, datetime):
            return replace(found, stored=span_and(found.stored, _span_ms(span(_microseconds(value)))))
        case "bornTimestamp" if isinstance(value, datetime):
            return replace(found, born=span_and(found.born, _span_ms(span(_microseconds(value)))))
    return found


def _span_ms(span: Span) -> Span:
    """The whole milliseconds in the span: columns have no finer unit."""
    low, high = (None if edge is None else -(-edge // 1000) for edge in span)
    return low, high


def _microseconds(when: datetime) -> int:
    """Exact. A time without a zone is UTC, like the column."""
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - EPOCH) // timedelta(microseconds=1)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _numbers(values: list[Any]) -> bool:
    return all(
        isinstance(value, int) and not isinstance(value, bool) and LONG_MIN < value < LONG_MAX
        for value in values
    )


def _texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) and _exact(value) for value in values)


def _exact(text: str) -> bool:
    """Bytes that are not UTF-8 show as the replacement character, so a value with one may match other
    bytes."""
    return REPLACEMENT not in text


def _both(found: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if found is None else found & frozenset(values)
