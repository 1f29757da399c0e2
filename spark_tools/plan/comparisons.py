"""Comparisons of a column with values, as a Pushdown: what filters of Spark, PyArrow and Polars have in common. Pure
functions.

The rows are checked again. So the Pushdown may let too many rows through, but never drops a matching one.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from firearrow.spark_tools.plan.pushdown import Pushdown, Span, span_and

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
SPANS: dict[str, Callable[[int], Span]] = {
    ">": lambda ticks: (ticks + 1, None),
    ">=": lambda ticks: (ticks, None),
    "<": lambda ticks: (None, ticks),
    "<=": lambda ticks: (None, ticks + 1),
}


def compared(found: Pushdown, column: str, operator: str, value: object) -> Pushdown:
    """`operator`: == or one of SPANS. Another one, and a value of a type that the column does not have, change
    nothing."""
    if operator == "==":
        return one_of(found, column, (value,))
    return _with_span(found, column, value, SPANS[operator]) if operator in SPANS else found


def one_of(found: Pushdown, column: str, values: Iterable[Any]) -> Pushdown:
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


def starts_with(found: Pushdown, column: str, prefix: str) -> Pushdown:
    if column != "topic" or not _exact(prefix):
        return found
    longer, shorter = sorted((prefix, found.topic_prefix), key=len, reverse=True)
    return (
        replace(found, topic_prefix=longer)
        if longer.startswith(shorter)
        else replace(found, topics=frozenset())
    )


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
