"""Commits and rollbacks of producers; each half message ends once. Loop thread.

The checks are Apache's, in its order. A second decision for the same half message is answered as done, but
ignored.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeGuard

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import PutRefused, PutStatus
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.event_counts import COMMITTED, FINISH_LATENCY, ROLLED_BACK
from firearrow.broker.base.message import Property
from firearrow.broker.base.peer import Peer
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.op_messages import OpEntry, OpMessageWriter
from firearrow.broker.transactions.open_halves import OpenHalfMessages

READ_MAX = 10_000
"""Open half messages that are read for their copies; a decision for a copy of others is ignored, and the message is
checked again."""
TOO_LATE = "the time to end this transaction has passed; the broker will check it"


class Decision(NamedTuple):
    """`half_offset`: in the half queue.

    `physical_offset`: in the log. `checked`: the decision answers a check. `message_id`: the half message has this id;
    None: any.
    """

    group: str
    half_offset: int
    physical_offset: int
    commit: bool
    checked: bool
    message_id: str | None = None


class EarlierCopies:
    """The copies of half messages that were made for checks before this start: a producer may know one of those that
    they replaced. They are read at the first decision that may concern one. `open_records()`: the open half messages.
    """

    def __init__(self, open_records: Callable[[], Iterator[Record | None]]) -> None:
        self._open_records = open_records
        self._offsets: dict[tuple[str, str, int], int] | None = None

    def offset(self, half: Record) -> int:
        """In the half queue, of the copy of this one; -1: there is none."""
        if self._offsets is None:
            records = itertools.islice(self._open_records(), READ_MAX)
            self._offsets = {_identity(each): each.queue_offset for each in records if _is_copy(each)}
        return self._offsets.get(_identity(half), -1)


def _is_copy(half: Record | None) -> TypeGuard[Record]:
    if half is None:
        return False
    checks = half_message.check_count(half.properties) > 0
    return checks or Property.PREPARED_QUEUE_OFFSET in half.properties


def _identity(half: Record) -> tuple[str, str, int]:
    """What a half message and its copies have in common."""
    group, key = (half.properties.get(name, "") for name in (Property.PRODUCER_GROUP, Property.UNIQUE_KEY))
    return group, key, half.born_timestamp


class EndTransactionService:
    def __init__(
        self,
        context: BrokerContext,
        appender: Appender,
        open_halves: OpenHalfMessages,
        op_writer: OpMessageWriter,
        earlier: EarlierCopies,
    ) -> None:
        self._earlier = earlier
        self._store = context.store
        self._appender = appender
        self._journal = context.journal
        self._open_halves = open_halves
        self._op_writer = op_writer
        self._config = context.config
        self._clock = context.clock
        self._stats = context.stats

    def end(self, decision: Decision, peer: Peer, answer: RemotingCommand | None) -> bool:
        """Commit or roll back; `answer` is sent to `peer` once that is stored. Raises Refusal.

        False: the transaction had ended before, and the caller has to answer.
        """
        prepared = self._prepared(decision)
        newest = self._open_halves.newest(decision.half_offset)
        if not self._open_halves.is_open(newest):
            newest = self._open_halves.newest(self._earlier.offset(prepared))
        if not self._open_halves.is_open(newest):
            return False
        if decision.commit:
            self._commit(prepared, newest, peer, answer)
        else:
            self._op_writer.put(OpEntry(newest, False, peer, answer))
            self._stats.events.add(ROLLED_BACK, (prepared.properties.get(Property.REAL_TOPIC, ""),))
        return True

    def _prepared(self, decision: Decision) -> Record:
        # the producer may have been informed of it before a restart or a promotion that hides it
        raw = self._store.reader.record_at(decision.physical_offset, unconfirmed=True)
        record = None if raw is None else decode(raw, False)
        if record is None or record.topic != name_rules.HALF_TOPIC:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        properties = record.properties
        if not decision.checked and self._is_late(record, properties):
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, TOO_LATE)
        if properties.get(Property.PRODUCER_GROUP) != decision.group:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if decision.message_id not in (None, properties.get(Property.UNIQUE_KEY, "")):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The message id wrong")
        if record.queue_offset != decision.half_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if record.physical_offset != decision.physical_offset:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return record

    def _is_late(self, record: Record, properties: dict[str, str]) -> bool:
        """Whether the message's immunity time has passed: then only the answer to a check may end it."""
        timeout_ms = self._config.options.transaction_timeout_ms
        immunity = half_message.immunity_ms(properties, timeout_ms)
        if immunity is None:
            return False
        return self._clock.now_ms() - record.born_timestamp > max(immunity, timeout_ms)

    def _commit(self, prepared: Record, newest: int, peer: Peer, answer: RemotingCommand | None) -> None:
        final = half_message.committed(prepared)
        try:
            put = self._appender.put_due(final, hooks=True, peer=peer, answer=answer)
        except PutRefused as refused:
            raise Refusal(*self._fault(refused)) from None
        self._journal.note(Kind.DECIDED, "", 0, newest, put.end)
        self._op_writer.put(OpEntry(newest, True))
        self._stats.put(final.topic, 1, put.end - put.physical_offset)
        topic = (prepared.properties.get(Property.REAL_TOPIC, ""),)
        self._stats.events.add(COMMITTED, topic)
        age_s = max(self._clock.now_ms() - prepared.born_timestamp, 0) // 1000
        self._stats.events.observe(FINISH_LATENCY, topic, age_s)

    def _fault(self, refused: PutRefused) -> tuple[int, str]:
        if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
            return ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."
        return ResponseCode.MESSAGE_ILLEGAL, (
            "The message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.options.max_message_bytes}B, msg properties length limit 32KB."
        )
