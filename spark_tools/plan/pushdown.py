"""Filter pushdown: a query's filters as fewer queues, smaller ranges and a narrower message filter.

It never drops a matching row; the caller checks each row again. Frozen. Pure, except that `range` looks up
times in a SourceReader.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange, SourceReader
from firearrow.spark_tools.plan.option_parsing import json_object

CLOCK_SLACK_MS = 60_000
"""Store times of a queue go back if the broker's clock was set back; ranges are widened by this much."""
Span = tuple[int | None, int | None]
"""Start, and exclusive end."""
ANY: Span = (None, None)
TEXTS, NUMBERS = {"topics", "tags", "keys", "unique_ids"}, {"queue_ids", "offsets"}
SPANS = {"queue_id_span", "offset_span", "stored", "born"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushdown:
    """None: no restriction. An empty set: no message matches."""

    topics: frozenset[str] | None = None
    topic_prefix: str = ""
    queue_ids: frozenset[int] | None = None
    queue_id_span: Span = ANY
    offsets: frozenset[int] | None = None
    offset_span: Span = ANY
    stored: Span = ANY
    born: Span = ANY
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    unique_ids: frozenset[str] | None = None

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Of what `to_json` wrote. ValueError."""
        given = json_object(text)
        return cls(**{name: _of_json(name, value) for name, value in given.items()})

    def to_json(self) -> str:
        """Only what is restricted."""
        restricted = {
            each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default
        }
        return json.dumps(restricted, default=sorted, sort_keys=True)

    def queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [] if self.nothing() else [queue for queue in queues if self._takes(queue)]

    def nothing(self) -> bool:
        """Whether no message can match."""
        sets = (self.topics, self.queue_ids, self.offsets, self.tags, self.keys, self.unique_ids)
        spans = (self.queue_id_span, self.offset_span, self.stored, self.born)
        return any(each is not None and not each for each in sets) or any(map(_empty, spans))

    def range(self, part: QueueRange, reader: SourceReader) -> QueueRange:
        """The part of the range that can match."""
        low, high = self.offset_span
        if self.offsets:
            low, high = span_and((low, high), (min(self.offsets), max(self.offsets) + 1))
        start = max(part.start, low if low is not None else part.start)
        end = min(part.end, high if high is not None else part.end)
        since, until = self.stored
        if start < end and since is not None:
            start = max(start, reader.offset_at(part.queue, max(0, since - CLOCK_SLACK_MS)))
        if start < end and until is not None:
            end = min(end, reader.offset_at(part.queue, until + CLOCK_SLACK_MS))
        return QueueRange(part.queue, start, max(start, end))

    def message_filter(self, message_filter: MessageFilter) -> MessageFilter | None:
        """Both filters combined. None: no message can match."""
        narrowed = replace(
            message_filter,
            tags=_both(message_filter.tags, self.tags),
            keys=message_filter.keys or self.keys or frozenset(),
            unique_ids=_both(message_filter.unique_ids, self.unique_ids),
            stored=span_and(message_filter.stored, self.stored),
            born=span_and(message_filter.born, self.born),
        )
        emptied = (self.tags and not narrowed.tags) or (self.unique_ids and not narrowed.unique_ids)
        return (
            None
            if self.nothing() or emptied or _empty(narrowed.stored) or _empty(narrowed.born)
            else narrowed
        )

    def _takes(self, queue: MessageQueue) -> bool:
        low, high = self.queue_id_span
        return (
            (self.topics is None or queue.topic in self.topics)
            and queue.topic.startswith(self.topic_prefix)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and (low is None or queue.queue_id >= low)
            and (high is None or queue.queue_id < high)
        )


def span_and(one: Span, other: Span) -> Span:
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return (max(lows) if lows else None, min(highs) if highs else None)


def _empty(span: Span) -> bool:
    low, high = span
    return low is not None and high is not None and high <= low


def _both(given: frozenset[str], narrowed: frozenset[str] | None) -> frozenset[str]:
    if narrowed is None:
        return given
    return given & narrowed if given else narrowed


def _of_json(name: str, value: object) -> Any:  # noqa: ANN401
    match value:
        case str() if name == "topic_prefix":
            return value
        case list() if name in TEXTS and all(isinstance(each, str) for each in value):
            return frozenset(value)
        case list() if name in NUMBERS and all(map(_is_number, value)):
            return frozenset(value)
        case [low, high] if name in SPANS and all(each is None or _is_number(each) for each in (low, high)):
            return low, high
    raise ValueError(f"expected what read_where sets, not {name}")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
