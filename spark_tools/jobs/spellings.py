"""How queues, offsets and files of keys are spelled in the options of jobs. ValueError says what is wanted.

Pure but for `lines`, which reads a file. Times, names and tags: firearrow.spark_tools.plan.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firearrow.spark_tools.plan.option_parsing import LONG_MAX, json_object, names, number

QUEUE_ID_MAX = 65535
KEYS_FILE_BYTES_MAX = 256 << 20
EARLIEST, LATEST = -2, -1
_QUEUES = re.compile(r"(?:(?P<broker>[^:]+):)?(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)


def lines(file: Path) -> frozenset[str]:
    """The lines of a UTF-8 file that hold something."""
    try:
        if file.stat().st_size > KEYS_FILE_BYTES_MAX:
            raise ValueError(f"larger than {KEYS_FILE_BYTES_MAX >> 20} MiB; split it")
        found = frozenset(line.strip() for line in file.read_text("utf-8").split("\n")) - {""}
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 text at byte {error.start}") from None
    if not found:
        raise ValueError("holds no line")
    return found


@dataclass(frozen=True, slots=True)
class QueueIdSet:
    """Queue ids, of one broker or of any: `0,2-5,broker-a:7`. Empty: all."""

    items: tuple[tuple[str | None, int, int], ...] = ()

    @classmethod
    def of(cls, text: str) -> "QueueIdSet":
        items = []
        for piece in names(text):
            match = _QUEUES.fullmatch(piece)
            first = int(match["first"]) if match else 0
            last = int(match["last"] or first) if match else -1
            if match is None or not first <= last <= QUEUE_ID_MAX:
                raise ValueError(f"{piece!r} is no queue; write 0,2-5 or broker-a:0-3")
            items.append((match["broker"], first, last))
        return cls(tuple(items))

    def __contains__(self, place: tuple[str, int]) -> bool:
        """(broker, queue id)."""
        broker, queue_id = place
        return not self.items or any(
            name in (None, broker) and first <= queue_id <= last for name, first, last in self.items
        )


Assigned = Mapping[tuple[str, str, int], tuple[int, int]]
"""(topic, broker, queue id) → (start, end); EARLIEST and LATEST stand for themselves."""


def assigned(text: str) -> Assigned:
    """`{"topic": {"broker": {"0": 100, "1": [100, 200], "2": [-2, -1]}}}`: a start, or a start and an exclusive end."""
    found = {}
    for topic, brokers in json_object(text).items():
        for broker, queues in _inner(brokers, f"brokers of {topic}").items():
            for name, value in _inner(queues, f"queues of {topic} at {broker}").items():
                found[topic, broker, number(name, 0, QUEUE_ID_MAX)] = _span(
                    value, f"queue {name} of {topic} at {broker}"
                )
    if not found:
        raise ValueError("names no queue")
    return found


def _inner(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f'{what}: write {{"topic": {{"broker": {{"0": [100, 200]}}}}}}')
    return value


def _span(value: object, place: str) -> tuple[int, int]:
    pair = value if isinstance(value, list) else [value, LATEST]
    if len(pair) != 2:
        raise ValueError(f"{place}: a start or [start, end] is wanted; -2 is the first, -1 the end")
    start, end = (number(bound, EARLIEST, LONG_MAX) for bound in pair)
    if end == EARLIEST or 0 <= end < start:
        raise ValueError(f"{place} ends before it starts")
    return start, end
