"""TimerMetrics: how many messages of each topic wait in the timer, and the file `config/timermetrics`. Loop thread."""

from collections.abc import Callable

import orjson

from firearrow.broker import fastjson
from firearrow.broker.clock import Clock

TOPICS_MAX = 100_000
"""Past it, topics of which nothing waits are forgotten, and further ones are not counted."""


class TimerMetrics:
    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._counts: dict[str, list[int]] = {}
        """Topic → number of messages, time of the last change in ms."""
        self._version = {"counter": 0, "stateVersion": 0, "timestamp": clock.now_ms()}

    def count(self, topic: str) -> int:
        return self._counts.get(topic, [0])[0]

    def add(self, topic: str | None, number: int) -> None:
        """`number` more of that topic wait."""
        if not topic:
            return
        now_ms = self._clock.now_ms()
        entry = self._counts.get(topic)
        if entry is None:
            if len(self._counts) >= TOPICS_MAX and not self._has_forgotten():
                return
            entry = self._counts[topic] = [0, now_ms]
        entry[0] += number
        entry[1] = now_ms
        self._version["counter"] += 1
        self._version["timestamp"] = now_ms
        self._changed()

    def to_json(self) -> bytes:
        counts = {
            topic: {"count": count, "timeStamp": changed_ms}
            for topic, (count, changed_ms) in self._counts.copy().items()
        }
        return orjson.dumps({"dataVersion": self._version, "timingCount": counts})

    def load(self, text: bytes) -> None:
        """ValueError when it is no such file."""
        table = fastjson.loads(text)
        if not isinstance(table, dict):
            raise ValueError("timermetrics is no object")
        version, counts = table.get("dataVersion"), table.get("timingCount")
        if isinstance(version, dict):
            self._version |= {
                name: version[name] for name in self._version if isinstance(version.get(name), int)
            }
        for topic, entry in counts.items() if isinstance(counts, dict) else ():
            if (
                isinstance(entry, dict)
                and isinstance(entry.get("count"), int)
                and len(self._counts) < TOPICS_MAX
            ):
                self._counts[topic] = [entry["count"], int(entry.get("timeStamp") or 0)]

    def _has_forgotten(self) -> bool:
        for topic in [topic for topic, (count, _) in self._counts.items() if count == 0]:
            del self._counts[topic]
        return len(self._counts) < TOPICS_MAX
