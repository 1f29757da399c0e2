"""Checks half messages that no producer ended (TransactionalMessageServiceImpl.check). Loop thread.

A round reads the open half messages in order. One that is old enough is appended to the half queue again,
with its count of checks, and then a producer is asked; after too many checks it goes to the discard topic.
Only a check that was sent to a producer counts: an immune message, and one whose producers are away, waits where it
is, and is copied uncounted only where it would hold back the progress of the queue or the deletion of log files.
The round ends at the first message that is too young, because those after it are younger. It runs in slices
of one pass of the event loop. Before the record of a step is written, the progress journal has the group's offset, or,
where other messages wait before it, that the message has ended, which an op message then states: neither a stop nor
a kill repeats or loses a copy.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import PutRefused, PutResult
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.event_counts import GIVEN_UP
from firearrow.broker.base.message import Message, Property
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.topics import InvalidTopic
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.check_sender import CheckRequestSender
from firearrow.broker.transactions.op_messages import OpMessageWriter
from firearrow.broker.transactions.open_halves import OpenHalfMessages

log = logging.getLogger("firearrow.transactions")

SLICE, SLICE_BYTES = 32, 1 << 20
HOUR_MS = 3_600_000
STAY_MS = HOUR_MS
"""How long a message that waits for its check stays where it is in the log: then a copy is made."""
AHEAD_MS = HOUR_MS
"""How far a producer's clock may be ahead of the broker's. A message that was born later would never be too old: it
does not wait, and its checks count, sent or not, as Apache's do."""
UNSENT_MAX = 100_000
"""Copies whose counted check could not be sent that are remembered."""
CHECKED, TOO_OLD, DELETED = "checks", "age", "deleted"
"""Why a transaction was given up: all checks were sent, fileReservedTime, or its log file was deleted."""


class CheckStep(NamedTuple):
    """What was put for a half message.

    `copied`: a copy replaces it; `asks`: a producer is asked once it is stored; `marks`: an op message states that it
    has ended, as others wait before it.
    """

    half: Record
    message: Message
    put: PutResult
    copied: bool
    asks: bool
    marks: bool


class CheckService:
    """`advanced()` is called after each slice and each round, when offsets may have moved."""

    def __init__(
        self,
        context: BrokerContext,
        appender: Appender,
        open_halves: OpenHalfMessages,
        op_writer: OpMessageWriter,
        check_sender: CheckRequestSender,
        advanced: Callable[[], None],
    ) -> None:
        self._loop = context.loop
        self._store = context.store
        self._appender = appender
        self._journal = context.journal
        self._open_halves = open_halves
        self._op_writer = op_writer
        self._check_sender = check_sender
        self._topics = context.tables.topics
        self._config = context.config
        self._clock = context.clock
        self._stats = context.stats
        self._advanced = advanced
        self._unsent: set[int] = set()
        """Copies whose last check was counted, but could not be sent: the producer left while they were written."""
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._running = False
        self._round_start_ms = 0
        self._is_sparse = False
        """At the start of the round, most half messages from the first open one on had ended."""
        self._next_round_ms = 0
        self._at = 0
        self._front = 0
        """All half messages before it have ended, once the steps of this slice are stored."""

    def start(self) -> None:
        self._running = True
        self._schedule_round()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def _schedule_round(self) -> None:
        if self._running:
            interval_ms = self._config.options.transaction_check_interval_ms
            self._next_round_ms = self._clock.now_ms() + interval_ms
            self._timer = self._loop.call_later(interval_ms / 1000, self._start_round)

    def next_check_ms(self, record: Record) -> int:
        """When the open half message is probably checked next: in the first round that finds it old enough."""
        options = self._config.options
        immunity = half_message.immunity_ms(record.properties, options.transaction_timeout_ms)
        due_ms = record.born_timestamp + (options.transaction_timeout_ms if immunity is None else immunity)
        rounds = max(-(-(due_ms - self._next_round_ms) // max(options.transaction_check_interval_ms, 1)), 0)
        return self._next_round_ms + rounds * options.transaction_check_interval_ms

    def _start_round(self) -> None:
        self._round_start_ms = self._clock.now_ms()
        self._at = self._open_halves.base
        self._op_writer.write_queued()
        end = self._store.reader.max_offset(name_rules.HALF_TOPIC, 0)
        self._is_sparse = 2 * self._open_halves.open_count(end) < end - self._at
        self._slice()

    def _slice(self) -> None:
        if not self._running:
            return
        steps: list[CheckStep] = []
        size, more = 0, True
        self._front = self._open_halves.base
        for _ in range(SLICE):
            record = self._next_half()
            if record is None:
                more = False
                break
            try:
                step = self._step(record)
            except (PutRefused, InvalidTopic) as refused:
                log.info(
                    "half message %d cannot be stored again now; trying again in the next round: %s",
                    self._at,
                    refused,
                )
                step = None
            if step is None:
                more = False
                break
            self._at += 1
            if isinstance(step, CheckStep):
                steps.append(step)
                size += record.size
                if size >= SLICE_BYTES:
                    break
        if steps:
            self._appender.on_durable(steps[-1].put.end, lambda stored: self._on_stored(steps, stored, more))
        else:
            self._continue(more)

    def _continue(self, more: bool) -> None:
        self._advanced()
        if more and self._running:
            self._timer = self._loop.call_soon(self._slice)
        else:
            self._schedule_round()

    def _next_half(self) -> Record | None:
        """The next existing half message from `_at` on; None at the end of the queue."""
        self._open_halves.skip_to(self._store.reader.min_offset(name_rules.HALF_TOPIC, 0))
        self._at = self._open_halves.next_open(self._at)
        while entries := self._store.reader.entries(name_rules.HALF_TOPIC, 0, self._at, 1):
            raw = self._store.reader.record_at(entries[0].physical_offset)
            if raw is not None:
                return decode(raw, False)
            self._note_deleted(self._at)
            self._open_halves.end([self._at])
            self._at = self._open_halves.next_open(self._at)
        return None

    def _step(self, record: Record) -> CheckStep | bool | None:
        """Process one half message; True if it has ended, None if the round ends before it."""
        options, now = self._config.options, self._clock.now_ms()
        properties = record.properties
        first = half_message.number_of(properties.get(Property.PREPARED_QUEUE_OFFSET, ""))
        if self._open_halves.was_ended_early(first):
            self._op_writer.queue_op(record.queue_offset)
            self._op_writer.write_queued()
            return True
        age = now - record.born_timestamp
        if self._checks_sent(record) >= options.transaction_check_max:
            return self._discard(record, CHECKED)
        if age > options.reserved_hours * HOUR_MS:
            return self._discard(record, TOO_OLD)
        if record.store_timestamp >= self._round_start_ms:
            return None
        immunity = half_message.immunity_ms(properties, options.transaction_timeout_ms)
        if immunity is None and 0 <= age <= options.transaction_timeout_ms:
            return None
        is_immune = immunity is not None and age <= immunity
        can_ask = self._check_sender.can_ask(properties)
        if (is_immune or not can_ask) and age >= -AHEAD_MS:
            return self._wait(record, now)
        return self._copy(record, counted=True, asks=can_ask)

    def _checks_sent(self, record: Record) -> int:
        return half_message.check_count(record.properties) - (record.queue_offset in self._unsent)

    def _wait(self, record: Record, now: int) -> CheckStep | bool:
        """Leave it where it is, or copy it, uncounted. Where most messages wait, copies would make nothing shorter."""
        after = self._store.reader.max_offset(name_rules.HALF_TOPIC, 0) - record.queue_offset
        holds_back = self._is_sparse and after > self._config.options.halves_max // 2
        if (now - record.store_timestamp > STAY_MS or holds_back) and self._is_first(record):
            return self._copy(record, counted=False, asks=False)
        return True

    def _is_first(self, record: Record) -> bool:
        """Whether no other one waits before it."""
        return self._open_halves.next_open(self._front) == record.queue_offset

    def _copy(self, record: Record, *, counted: bool, asks: bool) -> CheckStep:
        message = half_message.check_copy(record, counted=counted)
        if record.queue_offset in self._unsent:
            message.properties[Property.TRANSACTION_CHECKS] = str(self._checks_sent(record) + counted)
        marks = not self._is_first(record)
        put = self._put(record, message, marks=marks)
        self._open_halves.copy(record.queue_offset, put.queue_offset)
        return CheckStep(record, message, put, copied=True, asks=asks, marks=marks)

    def _discard(self, record: Record, reason: str) -> CheckStep:
        if half_message.DISCARD_TOPIC not in self._topics:
            self._topics.create(half_message.DISCARD_TOPIC, 1)
        marks = not self._is_first(record)
        self._open_halves.begin(record.queue_offset)
        try:
            message = half_message.discarded(record)
            put = self._put(record, message, marks=marks)
            step = CheckStep(record, message, put, copied=False, asks=False, marks=marks)
        except PutRefused:
            self._open_halves.reopen(record.queue_offset)
            raise
        properties = record.properties
        log.warning(
            "transaction %s of producer group %s was not ended by any producer (%d checks were sent, limit: %s); it is "
            "moved to topic %s: let its producer be asked again with firearrow tx ask",
            properties.get(Property.UNIQUE_KEY),
            properties.get(Property.PRODUCER_GROUP),
            max(self._checks_sent(record), 0),
            "transactionCheckMax" if reason == CHECKED else "fileReservedTime",
            half_message.DISCARD_TOPIC,
        )
        self._stats.events.add(GIVEN_UP, (properties.get(Property.REAL_TOPIC, ""), reason))
        return step

    def _note_deleted(self, half_offset: int) -> None:
        log.info("open half message %d was deleted with its log file; no producer had ended it", half_offset)
        self._stats.events.add(GIVEN_UP, ("", DELETED))

    def _put(self, record: Record, message: Message, *, marks: bool) -> PutResult:
        put = self._appender.put(message, hooks=False)
        if marks:
            self._journal.note(Kind.DECIDED, "", 0, record.queue_offset, put.end)
        else:
            self._front = record.queue_offset + 1
            key = f"{name_rules.HALF_TOPIC}@{half_message.GROUP}"
            self._journal.note(Kind.OFFSET, key, 0, self._front, put.end)
        self._stats.put(message.topic, 1, put.end - put.physical_offset)
        return put

    def _on_stored(self, steps: list[CheckStep], stored: bool, more: bool) -> None:
        for step in steps if stored else reversed(steps):
            offset = step.half.queue_offset
            if stored:
                if step.marks:
                    self._op_writer.queue_op(offset)
                else:
                    self._open_halves.end([offset])
                self._unsent.discard(offset)
                if step.asks and self._open_halves.is_open(step.put.queue_offset):
                    self._ask(step)
            elif step.copied:
                self._open_halves.cancel_copy(offset, step.put.queue_offset)
            else:
                self._open_halves.reopen(offset)
        self._op_writer.write_queued()
        self._continue(more and stored)

    def _ask(self, step: CheckStep) -> None:
        """Its copy, which counts the check, is stored; a check that cannot be sent now is taken back."""
        if not self._check_sender.send_check(step.half, step.message, step.put):
            if len(self._unsent) >= UNSENT_MAX:
                self._unsent.clear()
            self._unsent.add(step.put.queue_offset)
