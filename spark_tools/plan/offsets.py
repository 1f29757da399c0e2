"""Offsets as JSON and as values, and the points where reading starts or ends.

JSON form, in options and in stream checkpoints: `{"topic": {"broker": {"0": 23, "1": -1}}}`. In checkpoints it
also has the member RECORDS, which is ignored here, so that their offsets can be given as options. Pure
functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.plan.option_parsing import ITEMS_MAX, json_object, json_value, number, parse_time

Offsets = dict[MessageQueue, int]
OffsetsJson = dict[str, dict[str, dict[str, int]]]
LATEST, EARLIEST = -1, -2
"""In JSON, these stand for the ends of a queue."""
QUEUE_ID_MAX = (1 << 31) - 1
RECORDS = "@records"
"""Not a valid topic name. Its value has the form of the offsets; see queue_records.py."""
T = TypeVar("T")


class OffsetEdge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class PerQueue:
    """An offset, EARLIEST or LATEST for each queue. Queues not named start at the earliest and end at the
    latest."""

    offsets: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at `ms` or later, in every queue."""

    ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each queue. Queues not named are read as with PerQueue."""

    ms: Mapping[MessageQueue, int]


Point = OffsetEdge | PerQueue | AtTime | AtTimes


def offsets_json(offsets: Mapping[MessageQueue, int]) -> OffsetsJson:
    """The JSON form, sorted, so that equal offsets give equal strings."""
    tree: OffsetsJson = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def offsets_of(tree: object, *, low: int = 0) -> Offsets:
    """Parse the JSON form. ValueError states what is wrong. `low`: the smallest valid offset."""
    return offset_tree(tree, lambda value: number(value, low))


def offset_tree(tree: object, leaf: Callable[[object], T]) -> dict[MessageQueue, T]:
    """The values of a JSON object of topics, brokers and queues. ValueError states what is wrong."""
    found: dict[MessageQueue, T] = {}
    for topic, brokers in _members(tree, "topics"):
        if topic == RECORDS:
            continue
        for broker, queues in _members(brokers, f"brokers of {topic}"):
            for queue, value in _members(queues, f"queues of {topic} at {broker}"):
                found[MessageQueue(topic, broker, number(queue, 0, QUEUE_ID_MAX))] = leaf(value)
                if len(found) > ITEMS_MAX:
                    raise ValueError(f"more than {ITEMS_MAX} queues")
    return found


def start_point(text: str) -> Point:
    """`earliest`, `latest` or JSON, in which -2 and -1 mean these."""
    return _point(text)


def end_point(text: str) -> Point:
    """`latest` or JSON, in which -1 is the latest. The earliest is rejected: it would read nothing."""
    point = _point(text)
    if point is OffsetEdge.EARLIEST or (isinstance(point, PerQueue) and EARLIEST in point.offsets.values()):
        raise ValueError("reading cannot end at the earliest offset; expected latest, -1 or an offset")
    return point


def times_point(text: str) -> AtTimes:
    """JSON with times instead of offsets: ms or ISO 8601."""
    return AtTimes(offset_tree(json_object(text), _time))


def queue_ids(value: object) -> frozenset[int]:
    """Parse a JSON list of queue ids."""
    if not isinstance(value, list) or not value or len(value) > ITEMS_MAX:
        raise ValueError(f"expected a list of queue ids, not {value!r}")
    return frozenset(number(each, 0, QUEUE_ID_MAX) for each in value)


def _point(text: str) -> Point:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetEdge(word)
    if not word.startswith("{"):
        raise ValueError(
            'expected earliest, latest or JSON such as {"topic": {"broker": {"0": 23, "1": -1}}}'
        )
    return PerQueue(offsets_of(json_value(text), low=EARLIEST))


def _time(value: object) -> int:
    return parse_time(value if isinstance(value, str) else str(number(value, 0)))


def _members(tree: Any, what: str) -> list[tuple[str, Any]]:  # noqa: ANN401
    if not isinstance(tree, dict):
        raise ValueError(f"expected a JSON object of {what}, not {tree!r}")
    return list(tree.items())
