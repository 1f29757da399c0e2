"""LiteExpiry: deletes lite topics that have got no message for as long as their topic states (`lite.topic.expiration`),
and those of topics that do not exist any more. Loop thread, in slices.

Apache reads the last record of each lite topic (LiteLifecycleManager). Here each look finds, by the queues of a topic,
where the log has the first of its messages that is young enough: a lite topic whose last record is before it has
expired. That compares numbers in memory, so a million lite topics cost no read. These places are kept in
`liteExpiry.json` (ours): after a kill, a walk of the log brings back lite topics that had expired, and the next start
deletes them again before a client can get their messages once more. `to_json` may run in another thread.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads, pretty
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.topics import TopicConfig, TopicTable

log = logging.getLogger("firearrow.lite_topics")

SLICE_S = 0.002
STEP = 64
"""Queues between two looks at the clock."""
MINUTE_MS = 60_000
TOPICS_MAX = 10_000
"""Topics of which it is known what had expired."""
WAIT_S = 0.01
"""Between two slices."""


class LiteExpiry:
    """`forget(queue, groups)` removes what groups have of a lite topic that is deleted."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        config: Config,
        clock: Clock,
        forget: Callable[[str, Iterable[str]], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._store = store
        self._topics = topics
        self._groups = groups
        self._config = config
        self._clock = clock
        self._forget = forget
        self._changed = changed
        self._expired: dict[str, int] = {}
        """Topic → where its lite topics had their last record that have expired."""
        self._started_ms = clock.now_ms()
        self._looked_at = 0
        self._work: Iterator[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.deleted = 0

    def look(self) -> None:
        """Delete what has expired, unless the last look has not ended yet. Producers may have been unable to send while
        the broker was down: for a while after a start nothing expires."""
        now_ms, spared_ms = self._clock.now_ms(), self._config.options.lite_ttl_min_ms
        if self._work is not None or now_ms - self._started_ms < spared_ms or not self._store.lmq_count:
            return
        ends = {}
        for name in self._topics:
            topic = self._topics.get(name)
            if topic is not None and topic.lite_expiration_minutes > 0:
                ttl_ms = max(topic.lite_expiration_minutes * MINUTE_MS, spared_ms)
                ends[name] = self._first_since(topic, now_ms - ttl_ms)
        self._work = self._delete(ends, self._looked_at)
        self._looked_at = self._store.reader.confirmed
        self._slice()

    def topics_changed(self, names: Collection[str]) -> None:
        """Delete the lite topics of topics that were deleted. A slave may have messages of a topic that it does not
        know yet, and waits for `look`."""
        deleted = [name for name in names if name not in self._topics]
        if not deleted or not self._store.lmq_count or self._config.options.is_slave:
            return
        work = self._delete(dict.fromkeys(deleted, self._store.written), 0)
        self._work = work if self._work is None else chain(self._work, work)
        if self._timer is None:
            self._timer = self._loop.call_later(0, self._slice)

    def resume(self) -> None:
        """At the start: delete again what had expired before a kill. The log may end before that, if it was truncated:
        what is written then is new."""
        self._expired = {topic: min(end, self._store.written) for topic, end in self._expired.items()}
        for _ in self._delete(self._expired, 0):
            pass

    def to_json(self) -> bytes:
        return pretty({"expired": self._expired.copy()})

    def load(self, text: bytes) -> None:
        """Replace the places by the file's. ValueError: nothing changed."""
        of = json_fields.members_or_none(
            json_fields.members(loads(text), "liteExpiry.json").get("expired"), "expired"
        )
        ends = {topic: json_fields.number(of, topic, high=json_fields.LONG_MAX) for topic in of}
        self._expired = dict(list(ends.items())[:TOPICS_MAX])

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._work = None

    def _first_since(self, topic: TopicConfig, since_ms: int) -> int:
        """Where the log has the topic's first message that was stored at or after this time; the end of what readers
        see if there is none."""
        reader, first = self._store.reader, self._store.reader.confirmed
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            offset = reader.offset_by_time(topic.name, queue_id, since_ms)
            found = reader.entries(topic.name, queue_id, offset, 1)
            if found:
                first = min(first, found[0].physical_offset)
        return first

    def _delete(self, ends: dict[str, int], unowned: int) -> Iterator[None]:
        """Delete lite topics whose last record is before the end for their topic; without such a topic, before
        `unowned`. Yields between steps."""
        readers = self._readers_of(ends)
        deleted = 0
        for n, (queue, end) in enumerate(self._store.reader.last_ends(name_rules.LITE_PREFIX)):
            topic = name_rules.lite_names(queue)[0]
            is_old = end <= ends[topic] if topic in ends else topic not in self._topics and end <= unowned
            if is_old and self._store.drop_lmq(queue, end):
                self._forget(queue, readers.get(topic, ()))
                deleted += 1
                self._note(topic, ends.get(topic, unowned))
                yield
            elif n % STEP == STEP - 1:
                yield
        self.deleted += deleted
        if deleted:
            log.info("%d lite topics without new messages were deleted", deleted)

    def _note(self, topic: str, end: int) -> None:
        if self._expired.get(topic, 0) >= end:
            return
        if topic not in self._expired and len(self._expired) >= TOPICS_MAX:
            del self._expired[next(iter(self._expired))]
        self._expired[topic] = end
        self._changed()

    def _readers_of(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Topic → the groups of its lite topics."""
        found: dict[str, list[str]] = {topic: [] for topic in topics}
        for name in self._groups:
            group = self._groups.get(name)
            if group is not None and group.lite_topic in found:
                found[group.lite_topic].append(name)
        return found

    def _slice(self) -> None:
        self._timer = None
        until = self._loop.time() + SLICE_S
        try:
            while self._work is not None and self._loop.time() < until:
                next(self._work)
        except StopIteration:
            self._work = None
        except Exception:
            self._work = None
            log.exception("lite topics could not be deleted, will try again")
        if self._work is not None:
            self._timer = self._loop.call_later(WAIT_S, self._slice)
