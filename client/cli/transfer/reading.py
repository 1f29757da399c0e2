"""Reading: a topic from where an earlier run ended to where the first run saw its end, with what is missing or damaged.

Nothing is skipped silently: offsets that no message has, and bodies that do not match the CRC of their record, are
counted and reported.
"""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.compression import COMPRESSED, BodyUnreadable
from firearrow.client.base.errors import ClientError, ConfigError, TransportError
from firearrow.client.base.message import MessageQueue
from firearrow.client.cli.messages.message_view import Wanted, body_crc
from firearrow.client.cli.messages.queue_reader import From, Span, Start, TopicReader
from firearrow.client.cli.messages.selection import Selection
from firearrow.client.cli.transfer.checkpoint import Positions, ranges_text

INNER_BATCH = 0x40 | 0x80
"""Bits of sysFlag: the message was part of a batch that is stored as one record, which has the CRC."""
COMPACTION = "COMPACTION"
RANGES_MAX = 1000
QUEUES_SHOWN = 5


def key_of(queue: MessageQueue) -> str:
    """Of a queue within its topic: `broker-a/0`."""
    return f"{queue.broker_name}/{queue.queue_id}"


@dataclass(slots=True)
class Losses:
    """What could not be read: ranges of offsets, messages with a damaged body, and those of queues that clients may
    not read, by queue."""

    missing: int = 0
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    damaged: int = 0
    unreadable: dict[str, int] = field(default_factory=dict)

    @classmethod
    async def of(cls, reader: TopicReader) -> "Losses":
        """Before anything is read. NoRoute, ClientError."""
        found = await reader.unreadable()
        return cls(unreadable={key_of(queue): span.end - span.start for queue, span in found.items()})

    def lose(self, queue: str, start: int, end: int, number: int) -> None:
        self.missing += number
        if len(self.ranges) < RANGES_MAX:
            self.ranges.append((queue, start, end))

    def row(self) -> dict[str, Any]:
        unreadable = sum(self.unreadable.values())
        found = {"missing": self.missing, "damaged": self.damaged, "unreadable": unreadable}
        return {name: number for name, number in found.items() if number}

    def texts(self) -> Iterator[str]:
        """For an operator."""
        if self.missing:
            yield f"{self.missing} messages were deleted before they could be read: {ranges_text(self.ranges)}"
        if self.damaged:
            yield f"{self.damaged} messages have a body that is damaged at the broker"
        if self.unreadable:
            queues = ", ".join(list(self.unreadable)[:QUEUES_SHOWN])
            yield (
                f"{sum(self.unreadable.values())} messages are in queues that no client may read ({queues}): "
                "`firearrow topic set TOPIC --read-queues N` opens them"
            )


@dataclass(slots=True)
class Plan:
    """What one job reads of each queue, fixed at its first run: `ends`, and the times of its selection."""

    ends: dict[str, int]
    positions: dict[str, Positions]
    since_ms: int
    until_ms: int

    @classmethod
    async def of(cls, reader: TopicReader, selection: Selection, after: Mapping[str, int]) -> "Plan":
        """`after`: where an earlier job has ended in each queue. ConfigError: a queue ends before that; ClientError."""
        if selection.start.kind is From.LAST:
            raise ConfigError(
                "--from takes start, a time or an offset here, not a number of messages from the end"
            )
        spans = await reader.spans(selection.start)
        if selection.wanted.until_ms:
            spans = await reader.until(spans, selection.wanted.until_ms)
        ends, positions = {}, {}
        for queue, span in spans.items():
            key = key_of(queue)
            start = after.get(key, span.start)
            if start > span.end and not selection.wanted.until_ms:
                raise ConfigError(
                    f"queue {key} of {reader.topic} ends at {span.end}, before {start}, where the last run ended: the "
                    "topic was created again; --again starts from the beginning"
                )
            ends[key], positions[key] = max(span.end, start), Positions(start)
        for key in (
            after.keys() - ends.keys()
        ):  # its broker is away, and comes back with what was read already
            ends[key], positions[key] = after[key], Positions(after[key])
        return cls(ends, positions, selection.wanted.since_ms, selection.wanted.until_ms)

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> "Plan":
        positions = {key: Positions.of(each) for key, each in saved["positions"].items()}
        return cls(dict(saved["ends"]), positions, saved["sinceMs"], saved["untilMs"])

    def saved(self) -> dict[str, Any]:
        positions = {key: each.saved() for key, each in self.positions.items()}
        return {"ends": self.ends, "positions": positions, "sinceMs": self.since_ms, "untilMs": self.until_ms}

    @property
    def total(self) -> int:
        """Offsets that are left."""
        return sum(max(end - self.positions[key].next, 0) for key, end in self.ends.items())

    def wanted(self, selection: Selection) -> Wanted:
        given = selection.wanted
        return Wanted(given.keys, given.grep, self.since_ms, self.until_ms, given.tags, given.ids)


@dataclass(slots=True)
class Reading:
    """Reads what a plan has left. `losses` counts over all runs of the job."""

    admin: Admin
    topic: str
    sql: str | None
    plan: Plan
    losses: Losses

    async def messages(self) -> AsyncGenerator[tuple[str, ReceivedMessage], None]:
        """The messages that are not done, each with its queue, as store times order them. Those of a queue are in
        its order. ClientError; TransportError."""
        reader = TopicReader(self.admin, self.topic, sql=self.sql)
        if not await self._has_holes():
            for key, positions in self.plan.positions.items():
                positions.lost = partial(self.losses.lose, key)
        spans = await self._spans()
        expected = {key_of(queue): span.start for queue, span in spans.items()}
        async with contextlib.aclosing(reader.stored(spans)) as stored:
            async for message in stored:
                key = f"{message.broker_name}/{message.queue_id}"
                self._pass(key, expected[key], message.queue_offset)
                expected[key] = message.queue_offset + 1
                if not self.plan.positions[key].is_done(message.queue_offset):
                    yield key, message
        for key, offset in expected.items():
            self._pass(key, offset, self.plan.ends[key])

    def _pass(self, key: str, start: int, end: int) -> None:
        if start < end:
            self.plan.positions[key].passed(start, end)

    async def _has_holes(self) -> bool:
        """Whether offsets without a message are not losses: brokers leave out what an expression does not select, and
        compaction deletes messages that have a newer one with their key."""
        try:
            configs = await self.admin.topic_config(self.topic)
        except ClientError:  # reading reports what is wrong
            configs = {}
        policies = {config.attributes.get("cleanup.policy") for config in configs.values()}
        return self.sql is not None or COMPACTION in policies

    async def _spans(self) -> dict[MessageQueue, Span]:
        """What is left of each queue. A queue that its broker has no more is missing. TransportError: a broker is away:
        what it has is not lost."""
        spans = {}
        now = await TopicReader(self.admin, self.topic).spans(Start(From.START))
        by_key = {key_of(queue): queue for queue in now}
        here = {queue.broker_name for queue in now}
        for key, end in self.plan.ends.items():
            queue, start = by_key.get(key), self.plan.positions[key].next
            broker = key.rpartition("/")[0]
            if start < end and broker not in here:
                raise TransportError(
                    f"broker {broker}, which has messages of {self.topic}, is not there now: the same command "
                    "continues when it is; to do without them, start again"
                )
            if queue is None:
                self._pass(key, start, end)
                continue
            spans[queue] = Span(start, end)
        return spans

    def is_damaged(self, message: ReceivedMessage) -> bool:
        """Whether its body is not what was sent, which is counted."""
        try:
            body = message.body
        except BodyUnreadable:
            self.losses.damaged += 1
            return True
        if message.sys_flag & (COMPRESSED | INNER_BATCH) or not message.body_crc:
            return False  # the packed body has checked itself
        damaged = body_crc(body) != message.body_crc & 0x7FFFFFFF
        self.losses.damaged += damaged
        return damaged
