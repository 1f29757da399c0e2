"""All topics and all groups of the broker, page by page: what lists and checks of a cluster ask for. Loop thread.

- LIST_TOPICS (30019): queues of all topics, with their offsets.
- LIST_GROUPS (30020): members, progress and lag of all groups; with `details` each member, subscription and offset.

A page ends where it has many rows. The next one begins after the last name, or at the topic whose offsets it lacks:
names that come and go in between hide no others.
"""

import asyncio
from collections import defaultdict
from typing import Any

import orjson

from firearrow._native.metrics.group_sums import GroupSums
from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore
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
        removed = await self._removed_queues()
        names = sorted(name for name in self._topics if name > after)
        found: list[dict[str, Any]] = []
        pace = _Pace()
        for name in names:
            if pace.rows >= PAGE_ROWS_MAX:
                break
            numbers = sorted({*range(self._own_queues(name)), *removed.get(name, ())})
            queues = [self._queue(name, number) for number in numbers]
            row: dict[str, Any] = {"topic": name, "queues": queues}
            if has_sizes:
                row["bytes"] = sum(self._bytes(name, *queue[:3]) for queue in queues)
            found.append(row)
            if pace.add((len(queues) + 1) * (SIZES_READ if has_sizes else 1)):
                await pace.pause()
        return request.answer(body=orjson.dumps({"topics": found, "more": len(found) < len(names)}))

    async def _removed_queues(self) -> dict[str, list[int]]:
        """Topic → queues with messages that are not among its own any more."""
        found: dict[str, list[int]] = defaultdict(list)
        for count, (topic, number) in enumerate(self._reader.queues(), 1):
            if count % SLICE_ROWS == 0:
                await asyncio.sleep(0)
            if number >= self._own_queues(topic) > 0 and self._reader.max_offset(topic, number) > 0:
                found[topic].append(number)
        return found

    def _own_queues(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queues, config.write_queues)

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
            (entry.size + ENTRY_BYTES) / max(self._reader.messages_at(topic, queue_id, at), 1)
            for at in range(first, end, step)
            for entry in self._reader.entries(topic, queue_id, at, 1)
        ]
        return round((end - first) * sum(sizes) / len(sizes)) if sizes else 0

    # ---- groups ----

    async def groups(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        has_details = request.boolean_or("details", False)
        first, first_topic = request.text_or("fromGroup", ""), request.text_or("fromTopic", "")
        names = sorted(name for name in self._all_groups() if name >= first)
        found: list[dict[str, Any]] = []
        sums = GroupSums(self._reader, self._read_queues)
        pace, next_at = _Pace(), ("", "")
        for name in names:
            if pace.rows >= PAGE_ROWS_MAX:
                next_at = name, ""
                break
            if not has_details:
                found.append(await self._summary(name, sums, pace))
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

    async def _summary(self, name: str, sums: GroupSums, pace: "_Pace") -> dict[str, Any]:
        online, names = self._clients.consumer_group(name), self._topics_of(name)
        sums.begin()
        for start in range(0, len(names), SLICE_ROWS):
            sums.add(name, names, start, start + SLICE_ROWS, self._offsets.table)
            if pace.add(min(len(names) - start, SLICE_ROWS)):
                await pace.pause()
        pace.add(1)
        is_known = online is None or not online.is_broadcasting
        return _online_row(name, online) | {
            "topics": sums.count,
            "consumed": sums.consumed if is_known else -1,
            "lag": sums.lag if is_known else -1,
            "lagMs": max(self._clock.now_ms() - sums.oldest_ms, 0),
        }

    def _read_queues(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else config.read_queues

    def _topics_of(self, name: str) -> list[str]:
        """Those with an offset of the group; while it has members, those that they subscribe to."""
        online = self._clients.consumer_group(name)
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
