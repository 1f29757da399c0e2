"""Sends messages that a group did not acknowledge in time to its retry topic (PopReviveService). Loop thread.

There is one reader for each queue of the revive topic. The timer delivers check points and acknowledgements
there, a check point before its acknowledgements; a check point is settled once all its acknowledgements must
have arrived. Work is done in slices of one pass of the event loop. Progress is the committed offset of
CID_RMQ_SYS_REVIVE_GROUP, which is the last settled check point; within a check point it is an entry of the
progress journal, so that a kill revives no message twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import PutRefused, PutResult, PutStatus
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base import property_rules
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.event_counts import (
    PUT_OK,
    RETRIED,
    REVIVE_OUT,
    REVIVED,
    TYPE_ACK,
    TYPE_CHECK_POINT,
)
from firearrow.broker.base.message import Message, Property
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.pop.checkpoints import (
    ACK,
    BATCH_ACK,
    CHECK_POINT,
    AckDecoder,
    Key,
    PopCheckPoint,
    deliver_ms,
    revive_topic,
)
from firearrow.broker.pop.receipt_handles import normal_topic, retry_topic
from firearrow.broker.tables.topics import InvalidTopic

log = logging.getLogger("firearrow.revive")

GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
SETTLE_AFTER_MS = 2000
"""A check point is settled when the newest message of the queue was due this much later."""
QUIET_MS = 3000
"""If no message of the queue was due for this long, the time of the queue is the wall clock's."""
RETRY_MS, RETRY_MS_MAX = 10_000, 7_200_000
"""Time until the next attempt, if the retry topic refuses a message: it doubles, within these bounds."""
SLICE = 128
INDEX_BITS = 8


class ReviveQueue:
    """The state of one revive queue.

    `at`: the next entry to read. `checkpoints`: in the order of their queue offsets. `newest_ms`: when the
    newest message was due. `busy`: staged messages are not durable yet. `resume`: from the journal, see
    `restore`.
    """

    __slots__ = ("at", "busy", "checkpoints", "newest_ms", "number", "resume")

    def __init__(self, number: int, at: int) -> None:
        self.number = number
        self.at = at
        self.checkpoints: dict[Key, PopCheckPoint] = {}
        self.newest_ms = 0
        self.busy = False
        self.resume = 0


class ReviveService:
    """`timer_is_late()`: the timer has messages that are due and not delivered yet."""

    def __init__(self, context: BrokerContext, appender: Appender, timer_is_late: Callable[[], bool]) -> None:
        self._loop = context.loop
        self._store = context.store
        self._appender = appender
        self._journal = context.journal
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._offsets = context.tables.offsets
        self._config = context.config
        self._clock = context.clock
        self._stats = context.stats
        self._timer_is_late = timer_is_late
        self._topic = revive_topic(context.config.options.cluster_name)
        self._acks = AckDecoder()
        self._queues: list[ReviveQueue] = []
        self._resumes: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def restore(self, name: str, number: int, value: int) -> None:
        """From the journal: the first messages of a check point of revive queue `number` were revived.

        `value`: the check point's queue offset, shifted by INDEX_BITS, plus the number of its messages done.
        """
        self._resumes[number] = value

    def start(self) -> None:
        for number in range(self._queue_count()):
            queue = ReviveQueue(
                number,
                max(self._settled_before(number) + 1, self._store.reader.min_offset(self._topic, number)),
            )
            queue.resume = self._resumes.get(number, 0)
            self._queues.append(queue)
        self._arm()

    def _queue_count(self) -> int:
        """Also the queues that reviveQueueNum had before: check points still come to them from the timer."""
        self._topics.expand(self._topic, self._config.options.revive_queues)
        topic = self._topics.get(self._topic)
        return max(self._config.options.revive_queues, 0 if topic is None else topic.queues_read)

    def _settled_before(self, number: int) -> int:
        """The queue offset of the last settled check point; at most the last entry, after a power cut."""
        settled = self._offsets.committed(GROUP, self._topic, number)
        last = max(self._store.reader.max_offset(self._topic, number), 0) - 1
        if settled > last:
            settled = last
            self._offsets.commit(GROUP, self._topic, number, settled)
        return settled

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def pending(self) -> int:
        """How many check points were read and wait for their acknowledgements."""
        return sum(len(queue.checkpoints) for queue in self._queues)

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def broker_name(self) -> str:
        return self._config.options.broker_name

    def waiting_checkpoints(self) -> list[PopCheckPoint]:
        """Check points that were read and wait for their acknowledgements."""
        return [checkpoint for queue in self._queues for checkpoint in queue.checkpoints.values()]

    def unread(self) -> Iterator[int]:
        """Physical offsets of the messages of the revive topic that were not read yet."""
        for queue in self._queues:
            at = queue.at
            while entries := self._store.reader.entries(self._topic, queue.number, at, SLICE):
                yield from (entry.physical_offset for entry in entries)
                at += len(entries)

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._config.options.revive_interval_ms / 1000, self._tick)

    def _tick(self) -> None:
        for queue in self._queues:
            self._run(queue)
        self._arm()

    def _run(self, queue: ReviveQueue) -> None:
        """Read one slice and settle one slice; continue in the next pass if there is more."""
        if queue.busy or self._timer is None:
            return
        more = self._read(queue)
        if not more and queue.checkpoints and not self._is_hidden(queue):
            self._advance_time(queue)
        previous = self._offsets.committed(GROUP, self._topic, queue.number)
        last = self._settle(queue)
        if last is not None:
            queue.busy = True
            self._appender.on_durable(last.end, lambda durable: self._on_durable(queue, previous, durable))
        elif more:
            self._loop.call_soon(self._run, queue)

    def _on_durable(self, queue: ReviveQueue, previous: int, durable: bool) -> None:
        queue.busy = False
        if durable:
            self._run(queue)
            return
        self._offsets.commit(GROUP, self._topic, queue.number, previous)
        queue.checkpoints.clear()  # nothing was written: read all of it again
        queue.at = previous + 1

    # ---- reading ----

    def _is_hidden(self, queue: ReviveQueue) -> bool:
        """Whether it has messages that are not confirmed yet: they may acknowledge what was read."""
        return queue.at < self._store.next_offset(self._topic, queue.number)

    def _read(self, queue: ReviveQueue) -> bool:
        """Read one slice; return whether there may be more."""
        low = self._store.reader.min_offset(self._topic, queue.number)
        queue.at = max(queue.at, low)
        entries = self._store.reader.entries(self._topic, queue.number, queue.at, SLICE)
        for entry in entries:
            message = self._store.reader.message_at(entry.physical_offset)
            if message is not None:
                _, _, properties, body = message
                self._add_message(queue, properties, body, queue.at)
            queue.at += 1
        if entries:
            self._stats.got(GROUP, self._topic, len(entries), sum(entry.size for entry in entries))
        return len(entries) == SLICE

    def _add_message(self, queue: ReviveQueue, properties: dict[str, str], body: bytes, offset: int) -> None:
        tag = properties.get(Property.TAGS)
        try:
            if tag == CHECK_POINT:
                checkpoint = PopCheckPoint.of(body)
                checkpoint.revive_offset = offset
                self._count_read(queue, checkpoint.group, checkpoint.topic, TYPE_CHECK_POINT)
                queue.checkpoints.setdefault(checkpoint.key, checkpoint)
            elif tag in (ACK, BATCH_ACK):
                acks = self._acks.decode(body, self._config.options.broker_name)
                self._count_read(queue, acks.group, acks.topic, TYPE_ACK)
                acked = queue.checkpoints.get(acks.key)
                for acked_offset in acks.offsets if acked is not None else ():
                    acked.ack(acked_offset)  # type: ignore[union-attr]
            due_ms = deliver_ms(properties)
            if due_ms > queue.newest_ms and self._is_in_turn(properties):
                queue.newest_ms = due_ms
        except ValueError as error:
            log.info(
                "message %d of revive queue %d cannot be decoded and is skipped: %s",
                offset,
                queue.number,
                error,
            )

    def _is_in_turn(self, properties: dict[str, str]) -> bool:
        """A message that was due when it was stored did not wait in the timer: it overtakes those that a late timer
        still has, as after a restart, and acknowledgements are among them."""
        return Property.TIMER_OUT_MS in properties or not self._timer_is_late()

    def _count_read(self, queue: ReviveQueue, group: str, topic: str, kind: str) -> None:
        self._stats.events.add(REVIVE_OUT, (group, topic, str(queue.number), kind))

    def lags(self) -> list[tuple[int, int, int]]:
        """Of each revive queue: its number, the messages after the last settled one, and the age in ms of the oldest
        check point that waits to be settled."""
        now, found = self._clock.now_ms(), []
        for queue in self._queues:
            settled = max(self._offsets.committed(GROUP, self._topic, queue.number), -1)
            behind = max(self._store.reader.max_offset(self._topic, queue.number) - 1 - settled, 0)
            first = next(iter(queue.checkpoints.values()), None)
            found.append((queue.number, behind, 0 if first is None else max(now - first.revive_ms, 0)))
        return found

    def _advance_time(self, queue: ReviveQueue) -> None:
        now = self._clock.now_ms()
        if now - queue.newest_ms > QUIET_MS and not self._timer_is_late():
            queue.newest_ms = now

    # ---- settling ----

    def _settle(self, queue: ReviveQueue) -> PutResult | None:
        """Settle at most SLICE check points: revive unacknowledged messages. Returns the last one put."""
        last: PutResult | None = None
        done: list[Key] = []
        for key, checkpoint in queue.checkpoints.items():
            if queue.newest_ms - checkpoint.revive_ms <= SETTLE_AFTER_MS or len(done) == SLICE:
                break
            try:
                last = self._revive(queue, checkpoint) or last
            except (PutRefused, Refusal) as refused:
                log.info("a message cannot be revived now and is tried again: %s", refused)
                break
            done.append(key)
            end = 0 if last is None else last.end
            self._offsets.commit(GROUP, self._topic, queue.number, checkpoint.revive_offset, end)
        for key in done:
            del queue.checkpoints[key]
        return last

    def _revive(self, queue: ReviveQueue, checkpoint: PopCheckPoint) -> PutResult | None:
        """Revive one check point's messages; return the last one put.

        Raises PutRefused, Refusal: try again later.
        """
        last: PutResult | None = None
        if checkpoint.is_done or not self._is_needed(checkpoint):
            return last
        resume = queue.resume - (checkpoint.revive_offset << INDEX_BITS)
        for index, offset in enumerate(checkpoint.offsets):
            if checkpoint.acked >> index & 1 or index < resume <= len(checkpoint.offsets):
                continue
            message = self._retry_message(checkpoint, offset)
            if message is None:
                continue
            last = self._put(queue, checkpoint, offset, message)
            checkpoint.acked |= 1 << index
            value = (checkpoint.revive_offset << INDEX_BITS) + index + 1
            self._journal.note(Kind.REVIVE, "", queue.number, value, last.end)
            self._stats.put(message.topic, 1, last.end - last.physical_offset)
            self._count_revived(checkpoint)
        return last

    def _count_revived(self, checkpoint: PopCheckPoint) -> None:
        events, group = self._stats.events, checkpoint.group
        events.add(REVIVED, (group, checkpoint.topic, PUT_OK))
        events.add(RETRIED, (group,))
        events.settled(group, checkpoint.topic, 1)

    def _put(self, queue: ReviveQueue, checkpoint: PopCheckPoint, offset: int, message: Message) -> PutResult:
        """Put the message into the retry topic; if that refuses it, stage a check point that tries it again
        later.

        Raises PutRefused, Refusal: the store takes nothing now.
        """
        try:
            queues = self._make_topic(message.topic, checkpoint.group)
            message.queue_id = checkpoint.queue_id if checkpoint.queue_id < queues else 0
            return self._appender.put_due(message, group=checkpoint.group)
        except (InvalidTopic, PutRefused) as refused:
            if isinstance(refused, PutRefused) and refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
                raise
            log.error(
                "a message cannot be revived to topic %s and is tried again later: %s", message.topic, refused
            )
        now, wait_ms = self._clock.now_ms(), min(2 * max(checkpoint.invisible_ms, RETRY_MS), RETRY_MS_MAX)
        later = replace(
            checkpoint, start_offset=offset, pop_ms=now, invisible_ms=wait_ms, offsets=[offset], acked=0
        )
        return self._appender.put(later.message(self._topic, queue.number, now))

    def _is_needed(self, checkpoint: PopCheckPoint) -> bool:
        """Whether the check point's topic and group still exist: with a topic, its messages and retries are deleted."""
        return (
            normal_topic(checkpoint.topic, checkpoint.group) in self._topics
            and self._groups.find(checkpoint.group) is not None
        )

    def _retry_message(self, checkpoint: PopCheckPoint, offset: int) -> Message | None:
        """Build the message for the retry topic; None if retention or compaction has deleted it."""
        entries = self._store.reader.entries(checkpoint.topic, checkpoint.queue_id, offset, 1)
        record = self._store.reader.record_at(entries[0].physical_offset) if entries else None
        record = record or self._store.reader.compacted_record(checkpoint.topic, checkpoint.queue_id, offset)
        if record is None:
            return None
        message = Message.of_record(decode(record, False))
        properties = message.properties
        if not message.topic.startswith(name_rules.RETRY_PREFIX):
            message.topic = retry_topic(message.topic, checkpoint.group, self._config.options.pop_retry_v2)
            properties.pop(Property.RETRY_TOPIC, None)  # of its sender; in a retry topic it would count
        # items of a batch are stored as they came
        property_rules.remove(properties, (*property_rules.NEVER_SENT, *property_rules.OF_INNER_BATCHES))
        if message.reconsume_times == 0 or Property.FIRST_POP_TIME not in properties:
            properties[Property.FIRST_POP_TIME] = str(checkpoint.pop_ms)
        properties[Property.ORIGIN_GROUP] = checkpoint.group
        message.prepared_offset = 0
        message.born_host = message.store_host = b""
        message.reconsume_times += not checkpoint.suspend
        return message

    def _make_topic(self, topic: str, group: str) -> int:
        """Create the retry topic, or expand it to the queues of its topic; returns how many queues are
        used. InvalidTopic."""
        known = self._topics.get(topic)
        queues = 1
        if self._config.options.separate_retry_queues:
            normal = self._topics.get(normal_topic(topic, group))
            queues = 1 if normal is None else max(normal.write_queues, 1)
        before = 0 if known is None else min(known.read_queues, known.write_queues)
        if known is None:
            self._topics.create(topic, queues)
        elif before < queues:
            count = max(queues, known.read_queues, known.write_queues)
            self._topics.update(replace(known, read_queues=count, write_queues=count, attributes={}))
        for queue_id in range(before, queues):
            if self._offsets.committed(group, topic, queue_id) < 0:
                self._offsets.commit(group, topic, queue_id, 0)
        return queues
