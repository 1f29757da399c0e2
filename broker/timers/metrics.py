"""How many messages of each topic are pending in the timer: `config/timermetrics`. Loop thread."""

from collections.abc import Callable

from firearrow._native.protocol import fastjson
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.event_counts import DELAY, TIMER_DEQUEUED, TIMER_ENQUEUED, EventCounts
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import EACH, VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

TOPICS_MAX = 100_000
"""At this limit, topics without pending messages are dropped; if none can be, further topics are not counted.
"""

FILE = {"dataVersion": VERSION, "timingCount": {EACH: dict.fromkeys(("count", "timeStamp"))}}
"""The members that this version knows; others are kept as they are."""


class TimerMetrics:
    def __init__(self, clock: Clock, changed: Callable[[], None], events: EventCounts | None = None) -> None:
        self._clock = clock
        self._events = EventCounts() if events is None else events
        self._changed = changed
        self._counts: dict[str, tuple[int, int]] = {}
        """Topic → number of messages, time of the last change in ms."""
        self._unknown = UnknownFields("timermetrics", FILE)
        self.version = DataVersion(timestamp=clock.now_ms())

    def count(self, topic: str) -> int:
        return self._counts.get(topic, (0, 0))[0]

    def add(self, topic: str | None, number: int) -> None:
        """Count `number` more pending messages of the topic."""
        if not topic or (topic not in self._counts and self._is_full()):
            return
        now_ms = self._clock.now_ms()
        self._counts[topic] = (self.count(topic) + number, now_ms)
        self.version = self.version.next(now_ms)
        self._changed()

    def enqueued(self, topic: str, delay_s: int, count: int) -> None:
        """Messages of the topic with this delay, or recalls of some, were put into their slots."""
        self._events.add(TIMER_ENQUEUED, (topic,), count)
        self._events.observe(DELAY, (topic,), max(delay_s, 0), count)

    def dequeued(self, topic: str, count: int) -> None:
        """Messages of the topic left their slot."""
        self.add(topic, -count)
        self._events.add(TIMER_DEQUEUED, (topic,), count)

    def counts(self) -> dict[str, int]:
        """Topic → pending messages."""
        return {topic: max(count, 0) for topic, (count, _) in self._counts.items()}

    def reset(self) -> None:
        """Drop all counts."""
        self._counts = {}

    def to_json(self) -> bytes:
        counts = {
            topic: {"count": count, "timeStamp": changed_ms}
            for topic, (count, changed_ms) in self._counts.copy().items()
        }
        document = {"dataVersion": self.version.to_object(), "timingCount": counts}
        return fastjson.dumps(self._unknown.merge_into(document))

    def load(self, text: bytes) -> None:
        """Replace the counts with the file's. Raises ValueError and then changes nothing."""
        fields = json_fields.members(fastjson.loads(text), "timermetrics")
        version = DataVersion.from_object(fields.get("dataVersion", {}))
        counts: dict[str, tuple[int, int]] = {}
        for topic, entry in json_fields.members_or_none(fields.get("timingCount"), "timingCount").items():
            members = json_fields.members(entry, "timingCount")
            changed_ms = json_fields.whole(members.get("timeStamp", 0), "timeStamp")
            counts[str(topic)] = (json_fields.whole(members.get("count"), "count"), changed_ms)
        self._counts, self.version = counts, version
        self._unknown.collect(fields)

    def _is_full(self) -> bool:
        if len(self._counts) >= TOPICS_MAX:
            self._counts = {topic: entry for topic, entry in self._counts.items() if entry[0]}
        return len(self._counts) >= TOPICS_MAX
