"""Lists of messages that wait, which only FireArrow has: LIST_PENDING_TIMERS (30002), LIST_HALF_MESSAGES (30003),
LIST_POP_IN_FLIGHT (30005). Loop thread.

A request reads at most SCANNED entries, in slices of one pass of the event loop; `more` states that the list may
be incomplete. Of timers, `untilMs` is the due time before which it is complete: the next request begins there.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.delay_levels import DelayService
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.message_ids import host_text, offset_id
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.pop.checkpoints import revive_topic
from firearrow.broker.pop.in_flight import InFlight, InFlightMessage
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.tables.paging import limit_of
from firearrow.broker.timers.log import DELETE, ROLL, TimerRecord, topic_hash
from firearrow.broker.timers.recall_handle import recall_handle
from firearrow.broker.timers.rules import parse_number
from firearrow.broker.timers.service import DisabledTimers, TimerService
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.service import TransactionService

SCANNED = 10_000
SCANNED_EARLIER = 2000
"""Of these, in slots before the first time asked for: a message due far ahead waits there for its next round."""
SKIPPED = 32
"""As many timers of other topics than the one asked for count as one that is read: only their log is looked at."""
SLICE = 16
"""Entries that are read, and records decoded, in one pass of the event loop."""
NEVER_MS = (1 << 63) - 1

Found = list[tuple[int, dict[str, Any]]]
"""Due time in ms and message."""


class Scan:
    """Counts the entries that a request has read, and lets the loop do other work in between."""

    def __init__(self, count_max: int = SCANNED) -> None:
        self._left = count_max
        self._passed = self._skipped = 0

    async def step(self) -> bool:
        """Before each entry; False when no more may be read."""
        self._left -= 1
        self._passed += 1
        if self._passed % SLICE == 0:
            await asyncio.sleep(0)
        return self._left >= 0

    async def skip(self) -> bool:
        """In place of `step`, before an entry that is not meant."""
        self._skipped += 1
        return self._skipped % SKIPPED != 0 or await self.step()


class PendingTimersHandler:
    def __init__(
        self, context: BrokerContext, timers: TimerService | DisabledTimers, delays: DelayService
    ) -> None:
        self._store = context.store
        self._config = context.config
        self._timers = timers
        self._delays = delays
        self._pop_hash = topic_hash(revive_topic(context.config.options.cluster_name))

    def routes(self) -> Routes:
        return {RequestCode.LIST_PENDING_TIMERS: self.pending}

    async def pending(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, limit = request.text_or("topic", ""), limit_of(request)
        from_ms, to_ms = request.integer_or("from", 0), request.integer_or("to", NEVER_MS)
        if from_ms < 0 or to_ms < from_ms:
            remark = f"from and to must be times in ms, from {from_ms} not after to {to_ms}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        rolled, all_read = await self._rolled(topic, from_ms, to_ms)
        timers, timers_until = await self._timer_messages(topic, from_ms, to_ms, limit)
        delays, delays_until = await self._delayed_messages(topic, from_ms, to_ms, limit)
        until_ms = min(timers_until, delays_until)
        found = sorted(rolled + timers + delays, key=lambda pair: pair[0])
        known = [message for due_ms, message in found if due_ms < until_ms]
        listed = known or [message for _, message in found]  # one slot has more messages than are read
        more = until_ms < NEVER_MS or len(listed) > limit or not all_read
        until = {} if until_ms == NEVER_MS or len(listed) > limit else {"untilMs": until_ms}
        return request.answer(body=orjson.dumps({"messages": listed[:limit], "more": more, **until}))

    async def _timer_messages(self, topic: str, from_ms: int, to_ms: int, limit: int) -> tuple[Found, int]:
        """Messages of the timer, and the time before which all of them are known."""
        found: Found = []
        step_ms, scan, near, before_ms = self._timers.step_ms, Scan(), 0, -1
        first_ms, wanted = max(from_ms - step_ms, 0), topic_hash(topic) if topic else None
        for slot_ms, timer_record in self._timers.pending(first_ms):
            due_ms = slot_ms + step_ms
            if due_ms > to_ms:
                break
            is_meant = self._is_meant(timer_record, wanted) and not timer_record.magic & DELETE
            if (near > limit and slot_ms != before_ms) or not await (
                scan.step() if is_meant else scan.skip()
            ):
                return found, due_ms
            before_ms = slot_ms
            if is_meant:
                self._add_timer(found, timer_record, slot_ms, topic, from_ms, to_ms)
                near += bool(found) and found[-1][0] <= due_ms
        return found, NEVER_MS

    async def _rolled(self, topic: str, from_ms: int, to_ms: int) -> tuple[Found, bool]:
        """Messages that wait in earlier slots for their next round, and whether all such slots were read."""
        found: Found = []
        wanted = topic_hash(topic) if topic else None
        scan, first_ms = Scan(SCANNED_EARLIER), max(from_ms - self._timers.step_ms, 0)
        for slot_ms, timer_record in self._timers.pending() if first_ms else ():
            if slot_ms >= first_ms:
                break
            is_meant = timer_record.magic & ROLL and self._is_meant(timer_record, wanted)
            if not await (scan.step() if is_meant else scan.skip()):
                return found, False
            if is_meant:
                self._add_timer(found, timer_record, slot_ms, topic, from_ms, to_ms)
        return found, True

    def _is_meant(self, timer_record: TimerRecord, wanted: int | None) -> bool:
        """By the hash of its topic; without one all are, except POP's."""
        found = timer_record.topic_hash
        return found != self._pop_hash if wanted is None else found == wanted

    def _add_timer(
        self, found: Found, timer_record: TimerRecord, slot_ms: int, topic: str, from_ms: int, to_ms: int
    ) -> None:
        record = _record_at(self._store, timer_record.physical_offset)
        if record is None:
            return
        out_ms = parse_number(record.properties.get(Property.TIMER_OUT_MS, ""))
        due_ms = (slot_ms if out_ms is None else out_ms) + self._timers.step_ms
        if from_ms <= due_ms <= to_ms and _is_of(record, topic):
            message = _pending(record, due_ms, "timer")
            handle = recall_handle(Message.of_record(record), self._config.options.broker_name)
            found.append((due_ms, message if handle is None else message | {"recallHandle": handle}))

    async def _delayed_messages(self, topic: str, from_ms: int, to_ms: int, limit: int) -> tuple[Found, int]:
        """The same of the delay levels."""
        found: Found = []
        scan = Scan()
        for due_ms, entry in self._delays.waiting(from_ms):
            if due_ms > to_ms:
                break
            if len(found) > limit or not await scan.step():
                return found, due_ms
            record = _record_at(self._store, entry.physical_offset) if due_ms >= from_ms else None
            if record is not None and _is_of(record, topic):
                found.append((due_ms, _pending(record, due_ms, "delay")))
        return found, NEVER_MS


class HalfMessagesHandler:
    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def routes(self) -> Routes:
        return {RequestCode.LIST_HALF_MESSAGES: self.halves}

    async def halves(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, limit, scan = request.text_or("group", ""), limit_of(request), Scan()
        found: list[dict[str, Any]] = []
        more = False
        for record in self._transactions.open_records():
            if len(found) == limit or not await scan.step():
                more = True
                break
            producer_group = "" if record is None else record.properties.get(Property.PRODUCER_GROUP, "")
            if record is not None and group in ("", producer_group):
                found.append(self._half(record))
        return request.answer(body=orjson.dumps({"messages": found, "more": more}))

    def _half(self, record: Record) -> dict[str, Any]:
        properties = record.properties
        unique_key = properties.get(Property.UNIQUE_KEY, "")
        return {
            "topic": properties.get(Property.REAL_TOPIC, ""),
            "group": properties.get(Property.PRODUCER_GROUP, ""),
            "bornMs": record.born_timestamp,
            "storedMs": record.store_timestamp,
            "msgId": unique_key,
            "transactionId": properties.get(Property.TRANSACTION_ID, unique_key),
            "offsetMsgId": offset_id(record.store_host, record.physical_offset),
            "checks": max(half_message.number_of(properties.get(Property.TRANSACTION_CHECKS, "0")), 0),
            "nextCheckMs": self._transactions.next_check_ms(record),
            "bornHost": host_text(record.born_host),
            "keys": properties.get(Property.KEYS, ""),
            "tags": properties.get(Property.TAGS, ""),
        }


class PopInFlightHandler:
    def __init__(
        self,
        context: BrokerContext,
        timers: TimerService | DisabledTimers,
        orders: ConsumerOrderInfo,
        revive: ReviveService,
    ) -> None:
        self._store = context.store
        self._timers = timers
        self._orders = orders
        self._revive = revive

    def routes(self) -> Routes:
        return {RequestCode.LIST_POP_IN_FLIGHT: self.in_flight}

    async def in_flight(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, topic = request.text("group"), request.text_or("topic", "")
        limit, scan = limit_of(request), Scan()
        popped = InFlight(self._store, self._orders, self._revive, self._waiting, group, topic)
        for _ in popped.scan():
            if not await scan.step():
                break
        messages, more = popped.messages()
        found: list[dict[str, Any]] = []
        for message in messages[:limit]:
            await scan.step()
            found.append(self._message(message))
        body = {"messages": found, "more": more or len(messages) > limit}
        return request.answer(body=orjson.dumps(body))

    def _waiting(self) -> Iterator[tuple[int, int]]:
        """Slot in ms, and physical offset (-1: not POP's) of each pending message."""
        of_pop = topic_hash(self._revive.topic)
        for slot_ms, timer_record in self._timers.pending():
            yield slot_ms, timer_record.physical_offset if timer_record.topic_hash == of_pop else -1

    def _message(self, message: InFlightMessage) -> dict[str, Any]:
        entries = self._store.reader.entries(message.topic, message.queue_id, message.offset, 1)
        record = _record_at(self._store, entries[0].physical_offset) if entries else None
        return {
            "topic": message.topic,
            "group": message.group,
            "queueId": message.queue_id,
            "offset": message.offset,
            "poppedMs": message.pop_ms,
            "invisibleUntilMs": message.visible_ms,
            "reconsumeTimes": 0 if record is None else record.reconsume_times,
        }


def _record_at(store: MessageStore, physical_offset: int) -> Record | None:
    raw = store.reader.record_at(physical_offset)
    return None if raw is None else decode(raw, False)


def _is_of(record: Record, topic: str) -> bool:
    return not topic or record.properties.get(Property.REAL_TOPIC) == topic


def _pending(record: Record, due_ms: int, kind: str) -> dict[str, Any]:
    properties = record.properties
    return {
        "topic": properties.get(Property.REAL_TOPIC, ""),
        "queueId": max(parse_number(properties.get(Property.REAL_QUEUE_ID, "")) or 0, 0),
        "dueMs": due_ms,
        "storedMs": record.store_timestamp,
        "msgId": properties.get(Property.UNIQUE_KEY, ""),
        "keys": properties.get(Property.KEYS, ""),
        "tags": properties.get(Property.TAGS, ""),
        "bytes": len(record.body),
        "kind": kind,
    }
