"""MessagePath: all that brokers know of one message: stored, due, delivered, retried, dead; and why not.

It finds the message's copies by its unique id, which retries, dead letters, delayed and half messages keep. Loop
thread.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from firearrow._native.protocol.name_rules import dlq_topic, retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import DISCARDED, MessageTrack, Operations, Track
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.admin_api.message_queries import MessageQueries
from firearrow.client.base.errors import ClientError, OnlyFireArrow
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.times import age_text, now_ms, time_text
from firearrow.client.cli.messages.half_messages import HALF_TOPIC, HalfState, newest_state
from firearrow.client.cli.messages.send_delay import DEFAULT_LEVELS, delay_levels
from firearrow.client.trace.records import (
    EndTransactionRecord,
    InvalidTrace,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
    decode,
)

SCHEDULE_TOPIC, WHEEL_TOPIC, TRACE_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC"
TRACEPARENT = "traceparent"
GROUPS_MAX = 200
MEMBERS_SHOWN = 3
TRACES_MAX = 64
POPPED_MAX = 1000
Position = tuple[str, str, int, int]
"""Topic, broker, queue and offset"""


@dataclass(frozen=True, slots=True)
class Step:
    """`at_ms` 0: at no time that is known, such as a state. `trouble`: an operator should look at it."""

    step: str
    at_ms: int = 0
    group: str = ""
    where: str = ""
    detail: str = ""
    trouble: bool = False

    def row(self) -> dict[str, Any]:
        return {
            "atMs": self.at_ms,
            "step": self.step,
            "group": self.group,
            "where": self.where,
            "detail": self.detail,
            "trouble": self.trouble,
        }


class MessagePath:
    """`message`: the message in its topic, None if it is not there (yet). `message_id`: as it was asked for."""

    def __init__(self, admin: Admin, topic: str, message: ReceivedMessage | None, message_id: str) -> None:
        self._admin = admin
        self._topic = topic if message is None else message.topic
        self._message = message
        self._id = message_id if message is None else message.message_id
        self._queries = MessageQueries(admin.calls.instance, TIMEOUT_S)
        self._brokers: Mapping[str, str] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._only_apache = False

    async def steps(self) -> list[Step]:
        """By time; what has no time is last. ClientError NO_MESSAGE: there is no trace of it."""
        self._brokers = await self._admin.calls.masters()
        found: list[Step] = []
        for part in (self._begun, self._stored, self._traced, self._groups_steps):
            found += [step async for step in part()]
        if not found:
            raise ClientError(f"topic {self._topic} has no message {self._id}", ResponseCode.NO_MESSAGE)
        return sorted(found, key=lambda step: step.at_ms or NEVER)

    # ---- before the message is in its topic ----

    async def _begun(self) -> AsyncIterator[Step]:
        """Half messages, delays and timers."""
        halves = await self._copies(HALF_TOPIC)
        if halves:
            yield await self._half(halves[0], halves[-1])
        for discarded in await self._copies(DISCARDED):
            yield Step(
                "discarded",
                discarded.store_timestamp,
                discarded.get_property(Property.PRODUCER_GROUP, "") or "",
                _place(discarded),
                "no decision after all checks: `firearrow tx ask` resumes them",
                trouble=self._message is None,
            )
        for waiting in (*await self._copies(SCHEDULE_TOPIC), *await self._copies(WHEEL_TOPIC)):
            yield await self._scheduled(waiting)

    async def _half(self, first: ReceivedMessage, last: ReceivedMessage) -> Step:
        group = first.get_property(Property.PRODUCER_GROUP, "") or ""
        detail = "committed"
        if self._message is None:
            last, state = await newest_state(self._admin, last)
            checks = last.get_property(Property.TRANSACTION_CHECKS, "0")
            detail = {
                HalfState.OPEN: f"open, {checks} checks: the broker asks its producer; `firearrow tx` ends it",
                HalfState.ENDED: "ended without a message: rolled back",
                HalfState.UNKNOWN: "open or rolled back",
            }[state]
        return Step("half message", first.store_timestamp, group, _place(first), detail)

    async def _scheduled(self, waiting: ReceivedMessage) -> Step:
        due_ms, how = await self._due(waiting)
        real = self._admin.namespace.unwrap(waiting.get_property("REAL_TOPIC") or "?")
        detail = f"{how}, due {time_text(due_ms)} to {real}" if due_ms else how
        late = due_ms and due_ms < now_ms() - LATE_MS and not await self._copies(real)
        if late:
            detail += ", but it is not there: recalled, or still on its way"
        return Step("scheduled", waiting.store_timestamp, "", waiting.broker_name, detail, trouble=bool(late))

    async def _due(self, waiting: ReceivedMessage) -> tuple[int, str]:
        out_ms = waiting.get_property("TIMER_OUT_MS", "") or ""
        if out_ms.isdecimal():
            return int(out_ms[:16]), "timer"
        level = waiting.get_property(Property.DELAY, "") or ""
        table = (await self._config(waiting.broker_name)).get("messageDelayLevel", DEFAULT_LEVELS)
        level_ms = delay_levels(table).get(int(level) if level.isdecimal() and len(level) < 5 else 0)
        return (waiting.store_timestamp + level_ms if level_ms else 0), f"delay level {level}"

    async def _config(self, broker_name: str) -> dict[str, str]:
        if broker_name not in self._configs:
            self._configs[broker_name] = await self._admin.broker_config(broker_name)
        return self._configs[broker_name]

    # ---- in its topic ----

    async def _stored(self) -> AsyncIterator[Step]:
        copies = await self._copies(self._topic)
        message = self._message
        if message is not None and message.offset_message_id not in {
            each.offset_message_id for each in copies
        }:
            copies.append(message)
        for number, copy in enumerate(copies):
            words = [f"born {time_text(copy.born_timestamp)} at {copy.born_host}"]
            words += [f"tags {copy.tags}"] if copy.tags else []
            words += [f"keys {' '.join(copy.keys)}"] if copy.keys else []
            words += ["sent again"] if number else []
            yield Step("stored", copy.store_timestamp, "", _place(copy), ", ".join(words))
        parents = {copy.get_property(TRACEPARENT) for copy in copies} - {None}
        for parent in sorted(parent for parent in parents if parent):
            yield Step(TRACEPARENT, 0, "", "", parent)

    # ---- traces ----

    async def _traced(self) -> AsyncIterator[Step]:
        """What producers and consumers have recorded, if they do."""
        found: list[ReceivedMessage] = []
        with contextlib.suppress(ClientError):
            found = await self._admin.messages_by_key(TRACE_TOPIC, self._id, TRACES_MAX)
        groups: dict[str, str] = {}
        for message in found:
            with contextlib.suppress(InvalidTrace):
                for record in decode(message.body.decode("utf-8", "replace")):
                    if self._id in record.message_id.split(","):
                        if isinstance(record, SubBeforeRecord):
                            groups[record.request_id] = record.group
                        yield _traced_step(record, message, groups)

    # ---- groups ----

    async def _groups_steps(self) -> AsyncIterator[Step]:
        if self._message is None:
            return
        groups: list[str] = []
        with contextlib.suppress(ClientError):
            groups = (await self._admin.groups_of(self._topic))[:GROUPS_MAX]
        for group in groups:
            async for step in self._group(group, self._message):
                yield step

    async def _group(self, group: str, message: ReceivedMessage) -> AsyncIterator[Step]:
        popped = await self._popped(group)
        yield await self._delivered(group, message, popped)
        pop_retries = (f"{retry_topic(group)}+{self._topic}", f"{retry_topic(group)}_{self._topic}")
        for topic in (retry_topic(group), *pop_retries):
            for retry in await self._copies(topic):
                offset = await self._offset(group, retry)
                state = "delivered" if offset is not None and offset > retry.queue_offset else "waits"
                if (until_ms := popped.get(_position(retry))) is not None:
                    state = f"popped and not acknowledged, visible again at {time_text(until_ms)}"
                detail = f"retry {retry.reconsume_times}, {state}"
                yield Step("retry", retry.store_timestamp, group, _place(retry), detail)
        for dead in await self._copies(dlq_topic(group)):
            detail = f"after {dead.reconsume_times} retries: `firearrow dlq redrive {group}` sends it again"
            yield Step("dead", dead.store_timestamp, group, _place(dead), detail, trouble=True)

    async def _popped(self, group: str) -> dict[Position, int]:
        """What the group has popped and not acknowledged → until when it is invisible; empty on Apache's brokers."""
        if self._only_apache:
            return {}
        try:
            found = await Extensions(self._admin).pop_in_flight(group, limit=POPPED_MAX)
        except OnlyFireArrow:
            self._only_apache = True
            return {}
        except ClientError:
            return {}
        return {(p.topic, p.broker, p.queue_id, p.offset): p.invisible_until_ms for p in found}

    async def _delivered(self, group: str, message: ReceivedMessage, popped: Mapping[Position, int]) -> Step:
        track = await Operations(self._admin).message_track(group, message)
        offset = await self._offset(group, message)
        passed = offset is not None and offset > message.queue_offset
        members = await self._members(group)
        if (until_ms := popped.get(_position(message))) is not None:
            detail = f"not acknowledged, visible again at {time_text(until_ms)}"
            return Step("popped", 0, group, members, detail)
        if track.track is Track.CONSUMED_BUT_FILTERED:
            return Step("skipped", 0, group, members, f"the group does not subscribe tag {message.tags}")
        if track.track is Track.CONSUME_BROADCASTING:
            return Step("broadcast", 0, group, members, "each member has its own progress")
        if passed or track.track is Track.CONSUMED:
            return Step("delivered", 0, group, members, f"the group's offset is {offset}")
        return _not_delivered(group, members, message, offset, track)

    async def _members(self, group: str) -> str:
        try:
            ids = [each.client_id for each in (await self._admin.consumers(group)).connections]
        except ClientError:
            return ""
        return ", ".join(ids[:MEMBERS_SHOWN]) + ("…" if len(ids) > MEMBERS_SHOWN else "")

    async def _offset(self, group: str, message: ReceivedMessage) -> int | None:
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        try:
            return await self._admin.offset(group, queue)
        except ClientError:
            return None

    async def _copies(self, topic: str) -> list[ReceivedMessage]:
        return await self._queries.copies(topic, self._id, self._brokers)


TIMEOUT_S = 6.0
NEVER = 1 << 62
LATE_MS = 10_000


def _not_delivered(
    group: str, members: str, message: ReceivedMessage, offset: int | None, track: MessageTrack
) -> Step:
    if not members:
        return Step("not delivered", 0, group, "", "no member of the group is connected", trouble=True)
    if offset is None:
        detail = "the group has no offset in this queue yet"
    else:
        age = age_text(max(now_ms() - message.store_timestamp, 0))
        detail = f"{message.queue_offset - offset} messages are before it; it waits since {age}"
    if track.track is Track.UNKNOWN and track.error:
        detail = track.error
    return Step("not delivered", 0, group, members, detail)


def _position(message: ReceivedMessage) -> Position:
    return message.topic, message.broker_name, message.queue_id, message.queue_offset


def _place(message: ReceivedMessage) -> str:
    return f"{message.topic} {message.broker_name}/{message.queue_id}:{message.queue_offset}"


def _traced_step(record: TraceRecord, message: ReceivedMessage, groups: Mapping[str, str]) -> Step:
    host = message.born_host
    match record:
        case PubRecord():
            detail = f"{'sent' if record.success else 'failed'}, took {record.cost_ms}ms"
            return Step("trace: send", record.time_ms, record.group, host, detail, trouble=not record.success)
        case SubBeforeRecord():
            detail = f"handler called, {record.retries} retries"
            return Step("trace: deliver", record.time_ms, record.group, host, detail)
        case SubAfterRecord():
            group = record.group or groups.get(record.request_id, "")
            detail = f"handler: {record.returned.name}, took {record.cost_ms}ms"
            return Step("trace: handled", record.time_ms or message.born_timestamp, group, host, detail)
        case EndTransactionRecord():
            return Step("trace: transaction", record.time_ms, record.group, host, record.state)
        case RecallRecord():
            detail = "recalled" if record.success else "not recalled"
            return Step("trace: recall", record.time_ms, record.group, host, detail)
