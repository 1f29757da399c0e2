"""All topics and all groups of the broker, page by page: what lists and checks of a cluster ask for. Loop thread.

- LIST_TOPICS (30019): queues of all topics, with their offsets.
- LIST_GROUPS (30020): members, progress and lag of all groups; with `details` each member, subscription and offset.

A page ends where it has many rows. The next one begins after the last name, or at the topic whose offsets it lacks:
names that come and go in between hide no others.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore
from firearrow._native.store.store_reader import StoreReader
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.clients import ClientTable, ConsumerGroup
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable

PAGE_ROWS_MAX = 50_000
"""Queues, offsets, members and subscriptions of a page, about: some 2 MB."""
MEMBERS_LISTED_MAX, SUBSCRIPTIONS_LISTED_MAX = 1000, 10_000
EXPRESSION_CHARS_MAX = 500
"""Of one group in `details`: a group of any size fits into an answer."""
SIZES_READ, ENTRY_BYTES = 32, 20
SLICE_ROWS = 500
"""Rows that are read, in less than a millisecond, before the loop may do other work."""
NEVER_MS = 1 << 62
NOTHING: Mapping[int, int] = {}
BEYOND = 4
"""Queues after a topic's own that are looked at: what was taken away may hold messages."""


class OverviewHandler:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        clock: Clock,
    ) -> None:
        self._reader = store.reader
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._clock = clock

    def routes(self) -> Routes:
        return {RequestCode.LIST_TOPICS: self.topics, RequestCode.LIST_GROUPS: self.groups}

    # ---- topics ----

    async def topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        after, has_sizes = request.text_or("after", ""), request.boolean_or("sizes", False)
        names = sorted(name for name in self._topics if name > after)
        found: list[dict[str, Any]] = []
        pace = _Pace()
        for name in names:
            if pace.rows >= PAGE_ROWS_MAX:
                break
            queues = [self._queue(name, number) for number in self._queue_ids(name)]
            row: dict[str, Any] = {"topic": name, "queues": queues}
            if has_sizes:
                row["bytes"] = sum(self._bytes(name, *queue[:3]) for queue in queues)
            found.append(row)
            if pace.add((len(queues) + 1) * (SIZES_READ if has_sizes else 1)):
                await pace.pause()
        return request.answer(body=orjson.dumps({"topics": found, "more": len(found) < len(names)}))

    def _queue_ids(self, topic: str) -> Iterator[int]:
        """The topic's own queues, and those that were taken away from it and have messages."""
        config = self._topics.get(topic)
        own = 0 if config is None else max(config.read_queues, config.write_queues)
        yield from range(own)
        first, found = own, True
        while found:
            found = False
            for number in range(first, first + BEYOND):
                if self._reader.max_offset(topic, number) > 0:
                    found = True
                    yield number
            first += BEYOND

    def _queue(self, topic: str, queue_id: int) -> tuple[int, int, int, int]:
        """Id, first offset, end, and when the last message was stored (ms, 0: never)."""
        reader = self._reader
        end = reader.max_offset(topic, queue_id)
        last_ms = reader.store_time(topic, queue_id, end - 1) if end > 0 else 0
        return queue_id, max(reader.min_offset(topic, queue_id), 0), end, max(last_ms, 0)

    def _bytes(self, topic: str, queue_id: int, first: int, end: int) -> int:
        """Of the records and entries of a queue, about: from the sizes of SIZES_READ messages or all."""
        step = max((end - first) // SIZES_READ, 1)
        sizes = [
            entry.size
            for at in range(first, end, step)
            for entry in self._reader.entries(topic, queue_id, at, 1)
        ]
        return round((end - first) * (sum(sizes) / len(sizes) + ENTRY_BYTES)) if sizes else 0

    # ---- groups ----

    async def groups(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        has_details = request.boolean_or("details", False)
        first, first_topic = request.text_or("fromGroup", ""), request.text_or("fromTopic", "")
        names = sorted(name for name in self._all_groups() if name >= first)
        found: list[dict[str, Any]] = []
        ends = _Ends(self._reader, self._topics)
        pace, next_at = _Pace(), ("", "")
        for name in names:
            if pace.rows >= PAGE_ROWS_MAX:
                next_at = name, ""
                break
            if not has_details:
                found.append(await self._summary(name, ends, pace))
                continue
            row, next_topic = await self._details(name, first_topic if name == first else "", pace)
            found.append(row)
            if next_topic:
                next_at = name, next_topic
                break
        body = {"groups": found, "more": bool(next_at[0]), "nextGroup": next_at[0], "nextTopic": next_at[1]}
        return request.answer(body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS))

    def _all_groups(self) -> set[str]:
        """Those with a configuration, members or offsets. Offsets of broadcasting members have an @."""
        online = (each.name for each in self._clients.consumer_groups())
        return {*self._groups, *online, *(name for name in self._offsets.groups() if "@" not in name)}

    async def _summary(self, name: str, ends: "_Ends", pace: "_Pace") -> dict[str, Any]:
        online, table = self._clients.consumer_group(name), self._offsets.table
        sums, names = _Sums(), self._topics_of(name, online)
        for start in range(0, len(names), SLICE_ROWS):
            part = names[start : start + SLICE_ROWS]
            ends.add(sums, [(topic, table.get(f"{topic}@{name}", NOTHING)) for topic in part])
            if pace.add(len(part)):
                await pace.pause()
        pace.add(1)
        is_known = online is None or not online.is_broadcasting
        return _online_row(name, online) | {
            "topics": sums.topics,
            "consumed": sums.consumed if is_known else -1,
            "lag": sums.lag if is_known else -1,
            "lagMs": max(self._clock.now_ms() - sums.oldest_ms, 0),
        }

    def _topics_of(self, name: str, online: ConsumerGroup | None) -> list[str]:
        """Those with an offset of the group; while it has members, those that they subscribe to."""
        if online is None:
            return self._offsets.topics_of(name)
        return [] if online.is_broadcasting else list(online.subscriptions)

    async def _details(self, name: str, first_topic: str, pace: "_Pace") -> tuple[dict[str, Any], str]:
        """The row, and the topic at which the next page has to go on, or an empty name."""
        online = self._clients.consumer_group(name)
        row = _online_row(name, online)
        if online is not None and not first_topic:
            members = list(online.members.values())[:MEMBERS_LISTED_MAX]
            subscriptions = sorted(online.subscriptions.items())[:SUBSCRIPTIONS_LISTED_MAX]
            row["connections"] = [member.to_object() for member in members]
            row["subscriptions"] = {
                topic: subscription.expression[:EXPRESSION_CHARS_MAX] for topic, subscription in subscriptions
            }
            if pace.add(len(members) + len(subscriptions)):
                await pace.pause()
        row["offsets"] = offsets = dict[str, dict[int, int]]()
        for topic in self._offsets.topics_of(name):
            if topic < first_topic or topic not in self._topics:
                continue
            if pace.rows >= PAGE_ROWS_MAX and offsets:
                return row, topic
            queues = self._offsets.of(name, topic) or {}
            offsets[topic] = queues
            if pace.add(len(queues) + 1):
                await pace.pause()
        if pace.add(1):
            await pace.pause()
        return row, ""


def _online_row(name: str, online: ConsumerGroup | None) -> dict[str, Any]:
    return {
        "group": name,
        "system": name_rules.is_system_group(name),
        "members": 0 if online is None else len(online.client_ids()),
        "consumeType": "" if online is None else online.consume_type,
        "messageModel": "" if online is None else online.message_model,
        "consumeFromWhere": "" if online is None else online.consume_from_where,
    }


class _Pace:
    """Counts rows; `pause` after each slice, so that the loop can do other work."""

    def __init__(self) -> None:
        self.rows = 0
        self._slice_end = SLICE_ROWS

    def add(self, rows: int) -> bool:
        """Whether a pause is due."""
        self.rows += rows
        return self.rows >= self._slice_end

    async def pause(self) -> None:
        self._slice_end = self.rows + SLICE_ROWS
        await asyncio.sleep(0)


class _Sums:
    """Of one group. `consumed`: its offsets in total. `oldest_ms`: when its oldest unread message was stored."""

    __slots__ = ("consumed", "lag", "oldest_ms", "topics")

    def __init__(self) -> None:
        self.topics = self.consumed = self.lag = 0
        self.oldest_ms = NEVER_MS


class _Ends:
    """Ends of queues that have messages, and when these were stored, each looked up once in a page: groups read the
    same queues, and often stand at the same message."""

    def __init__(self, reader: StoreReader, topics: TopicTable) -> None:
        self._reader = reader
        self._topics = topics
        self._filled: dict[str, tuple[int, list[tuple[int, int]]]] = {}
        """Topic → its read queues, and the ends of those that have messages."""
        self._stored: dict[tuple[str, int, int], int] = {}

    def add(self, sums: _Sums, progress: Sequence[tuple[str, Mapping[int, int]]]) -> None:
        """Add the group's offsets in some topics, as consumerProgress counts them: in queues that can be read, and in
        those that were taken away and have more."""
        known = self._filled
        for topic, offsets in progress:
            found = known.get(topic) or self._look_up(topic)
            read_queues, filled = found
            sums.topics += read_queues > 0
            for number, end in filled:
                committed = offsets.get(number, 0)
                sums.consumed += committed
                if end > committed:
                    self._add_lag(sums, topic, number, committed, end)
            if offsets and read_queues and max(offsets) >= read_queues:
                for number, committed in offsets.items():
                    end = self._reader.max_offset(topic, number) if number >= read_queues else 0
                    if end > committed:
                        sums.consumed += committed
                        self._add_lag(sums, topic, number, committed, end)

    def _look_up(self, topic: str) -> tuple[int, list[tuple[int, int]]]:
        """No read queues: there is no such topic."""
        config = self._topics.get(topic)
        read_queues = 0 if config is None else config.read_queues
        ends = ((number, self._reader.max_offset(topic, number)) for number in range(read_queues))
        found = self._filled[topic] = read_queues, [pair for pair in ends if pair[1]]
        return found

    def _add_lag(self, sums: _Sums, topic: str, number: int, at: int, end: int) -> None:
        sums.lag += end - at
        stored_ms = self._stored.get((topic, number, at))
        if stored_ms is None:
            first = max(at, self._reader.min_offset(topic, number))
            stored_ms = self._stored[topic, number, at] = self._reader.store_time(topic, number, first)
        if 0 <= stored_ms < sums.oldest_ms:
            sums.oldest_ms = stored_ms
