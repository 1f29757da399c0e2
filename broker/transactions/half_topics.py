"""HalfTopics: to which topics the open half messages belong. Loop thread.

Each call reads the half messages that are open and were not read before, and drops those that have ended.
"""

from collections import Counter

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property
from firearrow.broker.transactions.open_halves import OpenHalfMessages

KNOWN_MAX = 10_000
"""Half messages whose topic is remembered, and about as many topics that had some."""
READ_MAX = 500
"""Half messages that one call reads."""
OTHER = ""
"""The topic of all that were not read."""


class HalfTopics:
    def __init__(self, store: MessageStore, open_halves: OpenHalfMessages) -> None:
        self._store = store
        self._open_halves = open_halves
        self._known: dict[int, str] = {}
        self._seen: set[str] = set()
        self._at = 0

    def counts(self) -> dict[str, int]:
        """Topic → open half messages; 0 for topics that had some. OTHER: of topics that are not known."""
        halves, end = self._open_halves, self._store.reader.max_offset(name_rules.HALF_TOPIC, 0)
        for offset in [offset for offset in self._known if not halves.is_open(offset)]:
            del self._known[offset]
        self._at = max(self._at, halves.base)
        for _ in range(READ_MAX):
            self._at = halves.next_open(self._at)
            if self._at >= end or len(self._known) >= KNOWN_MAX:
                break
            self._known[self._at] = self._topic_at(self._at)
            self._at += 1
        found = Counter(self._known.values())
        if len(self._seen) < KNOWN_MAX:
            self._seen.update(found)
        rest = halves.open_count(end) - len(self._known)
        return dict.fromkeys(sorted(self._seen), 0) | found | ({OTHER: rest} if rest > 0 else {})

    def _topic_at(self, offset: int) -> str:
        entries = self._store.reader.entries(name_rules.HALF_TOPIC, 0, offset, 1)
        raw = self._store.reader.record_at(entries[0].physical_offset) if entries else None
        return OTHER if raw is None else decode(raw, False).properties.get(Property.REAL_TOPIC, OTHER)
