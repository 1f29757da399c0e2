"""Top counts: messages and bytes by topic, queue, tag, hour and producer host. Memory is bounded.

When there are too many keys, only the busiest are kept: pruned counts are lower bounds, but the sum of all
counts and the rest is exact. One thread for each object; they are merged afterwards.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address

from firearrow._native.columnar.counters import NameCounters
from firearrow._native.store_checks.log_records import Survey

NAMES_MAX = 8192

Key = tuple[str | int, ...]


@dataclass(slots=True)
class TopCounts:
    """Key → [messages, bytes]. `limit` 0: all keys are kept."""

    limit: int = NAMES_MAX
    rows: dict[Key, list[int]] = field(default_factory=dict)
    rest: list[int] = field(default_factory=lambda: [0, 0])
    pruned: bool = False

    def add(self, key: Key, messages: int, size: int) -> None:
        row = self.rows.get(key)
        if row is not None:
            row[0] += messages
            row[1] += size
            return
        if self.limit and len(self.rows) >= self.limit:
            self._prune()
        self.rows[key] = [messages, size]

    def add_counts(self, names: NameCounters, keys: Iterable[Key]) -> None:
        """Add native counts; `keys` are in the order of `names.items()`."""
        for key, (_, _, messages, size) in zip(keys, names.items(), strict=True):
            self.add(key, messages, size)
        self._add_to_rest(names.rest_messages, names.rest_bytes)
        self.pruned |= names.pruned

    def merge(self, other: "TopCounts") -> None:
        for key, (messages, size) in other.rows.items():
            self.add(key, messages, size)
        self._add_to_rest(*other.rest)
        self.pruned |= other.pruned

    def busiest(self, count: int) -> list[tuple[Key, int, int]]:
        """(key, messages, bytes), most messages first."""
        ordered = sorted(self.rows.items(), key=lambda row: (-row[1][0], row[0]))
        return [(key, messages, size) for key, (messages, size) in ordered[:count]]

    def _add_to_rest(self, messages: int, size: int) -> None:
        self.rest[0] += messages
        self.rest[1] += size

    def _prune(self) -> None:
        middle = sorted(messages for messages, _ in self.rows.values())[len(self.rows) // 2]
        kept = {}
        for key, (messages, size) in self.rows.items():
            if messages > middle:
                kept[key] = [messages, size]
            else:
                self._add_to_rest(messages, size)
        self.rows, self.pruned = kept, True


@dataclass(slots=True)
class LogCounts:
    """Keys: queues (topic, queue id), tags (topic, tag), hours (hours since 1970,), hosts (address,)."""

    queues: TopCounts = field(default_factory=lambda: TopCounts(0))
    tags: TopCounts = field(default_factory=TopCounts)
    hours: TopCounts = field(default_factory=lambda: TopCounts(8 * NAMES_MAX))
    hosts: TopCounts = field(default_factory=TopCounts)
    times: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """First and last store time of each queue, ms."""

    def add_counts(self, survey: Survey) -> None:
        topics = [text(name) for name in survey.topic_names()]
        for queue in survey.queues():
            if queue.messages:
                key = text(queue.topic), queue.queue_id
                self.queues.add(key, queue.messages, queue.bytes)
                self._time(key, (queue.first_ms, queue.last_ms))
        self.tags.add_counts(survey.tags, [(topics[row[0]], text(row[1])) for row in survey.tags.items()])
        self.hours.add_counts(survey.hours, [(row[0],) for row in survey.hours.items()])
        self.hosts.add_counts(survey.hosts, [(address(row[1]),) for row in survey.hosts.items()])

    def merge(self, other: "LogCounts") -> None:
        self.queues.merge(other.queues)
        self.tags.merge(other.tags)
        self.hours.merge(other.hours)
        self.hosts.merge(other.hosts)
        for key, span in other.times.items():
            self._time(key, span)

    def topics(self) -> TopCounts:
        found = TopCounts(0)
        for (topic, _), (messages, size) in self.queues.rows.items():
            found.add((topic,), messages, size)
        return found

    def _time(self, key: Key, span: tuple[int, int]) -> None:
        first, last = self.times.get(key, span)
        self.times[key] = min(first, span[0]), max(last, span[1])


def text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def address(host: bytes) -> str:
    """The IP address of the 4 or 16 bytes in a record."""
    return str(ip_address(host))
