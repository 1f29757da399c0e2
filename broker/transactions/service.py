"""The transactions of a broker: composes the parts, restores their state from the store, commits offsets.
Loop thread.

At start, the op messages from the committed offset on state which half messages have ended; the progress
journal adds commits and copies whose op message a torn write lost, and the log commits of a former master. The offsets
of CID_RMQ_SYS_TRANS are committed as Apache does, so that its broker can continue from there.
"""

import logging
import socket
from collections.abc import Iterator

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import PutRefused
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.base.peer import Peer
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.check_sender import CheckRequestSender
from firearrow.broker.transactions.check_service import CheckService
from firearrow.broker.transactions.end_transaction import Decision, EarlierCopies, EndTransactionService
from firearrow.broker.transactions.half_topics import HalfTopics
from firearrow.broker.transactions.op_messages import TAG, OpMessageWriter
from firearrow.broker.transactions.open_halves import OpenHalfMessages, op_half_offsets

log = logging.getLogger("firearrow.transactions")

PAGE = 256
NOT_RESUMED = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class TransactionService:
    def __init__(self, context: BrokerContext, appender: Appender) -> None:
        self._store = context.store
        self._appender = appender
        self._offsets = context.tables.offsets
        self._config = context.config
        self._committed_halves: list[int] = []
        self._committed: dict[str, int] = {}
        self._ip = context.config.options.broker_ip or socket.inet_ntop(*_address(appender.store_host))
        self._open_halves = OpenHalfMessages(0, 0)
        self._op_writer = OpMessageWriter(
            context.write_batch,
            appender,
            self._open_halves,
            context.config,
            context.clock,
            context.stats,
            advanced=self._commit_offsets,
        )
        earlier = EarlierCopies(self.open_records)
        self._end_service = EndTransactionService(
            context, appender, self._open_halves, self._op_writer, earlier
        )
        check_sender = CheckRequestSender(
            context.tables.clients,
            context.config.options.broker_name,
            appender.store_host,
            context.held_access,
        )
        self._checks = CheckService(
            context, appender, self._open_halves, self._op_writer, check_sender, advanced=self._commit_offsets
        )

    def restore(self, name: str, number: int, value: int) -> None:
        """From the journal: half message `value` has ended, and its final message, or its copy, is in the log."""
        self._committed_halves.append(value)

    def start(self, followed: FollowedLog | None = None) -> None:
        """`followed`: the log, if another broker may have committed from it."""
        self._open_halves.base = self._offset(name_rules.HALF_TOPIC)
        self._open_halves.op_base = self._offset(name_rules.OP_HALF_TOPIC)
        at, high = self._open_halves.op_base, self._store.reader.max_offset(name_rules.OP_HALF_TOPIC, 0)
        self._op_writer.single_offsets = self._has_single_offsets(high)
        while at < high:
            self._load_page(at)
            at += PAGE
        if followed is not None and followed.until:
            self._committed_halves += self._committed_by_another(followed)
        for half_offset in self._committed_halves:
            if self._open_halves.is_open(half_offset):
                log.info("the op message of half message %d was lost; it is written again", half_offset)
                self._op_writer.queue_op(half_offset)
        self._committed_halves.clear()
        self._op_writer.write_queued()
        self._commit_offsets()
        self._checks.start()

    def _committed_by_another(self, followed: FollowedLog) -> list[int]:
        """Open half messages whose final message is in the log: Apache's master writes op messages 3 s late."""
        return [
            half.queue_offset
            for half in self.open_records()
            if half is not None and followed.covers(half.physical_offset) and followed.has_commit(half)
        ]

    def stop(self) -> None:
        self._checks.stop()
        self._commit_offsets()

    def open_count(self) -> int:
        """How many half messages wait for their decision."""
        return self._open_halves.open_count(self._store.reader.max_offset(name_rules.HALF_TOPIC, 0))

    def open_topics(self) -> HalfTopics:
        """A look-up of the topics of open half messages."""
        return HalfTopics(self._store, self._open_halves)

    def prepare(self, message: Message) -> None:
        """Turn a message that begins a transaction into a half message. Raises Refusal."""
        options = self._config.options
        if options.reject_transactions:
            remark = f"the broker[{self._ip}] sending transaction message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        pending = self._store.reader.max_offset(name_rules.HALF_TOPIC, 0) - self._open_halves.base
        if pending >= options.halves_max:
            remark = f"{pending} half messages are pending, at most {options.halves_max} are allowed"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
        half_message.make_half(message)

    def end(self, decision: Decision, peer: Peer, answer: RemotingCommand | None) -> bool:
        """Commit or roll back; False if it had ended before: then the caller answers. Raises Refusal."""
        return self._end_service.end(decision, peer, answer)

    def resume(self, message_id: str, peer: Peer, answer: RemotingCommand | None) -> None:
        """Turn a discarded message into a half message; `answer` is sent once that is stored.

        Raises Refusal.
        """
        try:
            raw = self._store.reader.record_at(offset_of(message_id))
        except ValueError:
            raw = None
        record = None if raw is None else decode(raw, False)
        if record is None or record.topic != half_message.DISCARD_TOPIC:
            raise Refusal(ResponseCode.SYSTEM_ERROR, NOT_RESUMED)
        try:
            self._appender.put(half_message.resumed(record), hooks=False, peer=peer, answer=answer)
        except PutRefused:
            remark = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None

    def open_records(self) -> Iterator[Record | None]:
        """The open half messages in their order; None for one that the log has no more."""
        reader, topic = self._store.reader, name_rules.HALF_TOPIC
        at = self._open_halves.next_open(reader.min_offset(topic, 0))
        while entries := reader.entries(topic, 0, at, 1):
            raw = reader.record_at(entries[0].physical_offset)
            yield None if raw is None else decode(raw, False)
            at = self._open_halves.next_open(at + 1)

    def next_check_ms(self, record: Record) -> int:
        """When the open half message is probably checked next."""
        return self._checks.next_check_ms(record)

    def _load_page(self, at: int) -> None:
        for queue_offset, body in enumerate(self._op_bodies(at, PAGE), at):
            self._open_halves.load(queue_offset, op_half_offsets(body))

    def _has_single_offsets(self, high: int) -> bool:
        """Whether the last op message has the form of Apache 4, which may open the store again."""
        last = next(self._op_bodies(max(high - 1, 0), 1), b"")
        return last.isdigit()

    def _op_bodies(self, at: int, count: int) -> Iterator[bytes]:
        """Yield the bodies of op messages from offset `at` on; b"" for other messages."""
        for entry in self._store.reader.entries(name_rules.OP_HALF_TOPIC, 0, at, count):
            raw = self._store.reader.record_at(entry.physical_offset)
            record = None if raw is None else decode(raw, False)
            yield record.body if record is not None and record.properties.get(Property.TAGS) == TAG else b""

    def _offset(self, topic: str) -> int:
        low, high = self._store.reader.min_offset(topic, 0), self._store.reader.max_offset(topic, 0)
        committed = self._offsets.committed(half_message.GROUP, topic, 0)
        self._committed[topic] = low if committed < 0 else committed
        return min(max(committed, low), high)

    def _commit_offsets(self) -> None:
        """Commit the offsets.

        After a crash they count only if the log has the copies and op messages before them.
        """
        end = 0 if self._config.options.sync_flush else self._store.written
        for topic, offset in (
            (name_rules.HALF_TOPIC, self._open_halves.base),
            (name_rules.OP_HALF_TOPIC, self._open_halves.op_base),
        ):
            if self._committed[topic] != offset:
                self._offsets.commit(half_message.GROUP, topic, 0, offset, end)
                self._committed[topic] = offset


def _address(host: bytes) -> tuple[int, bytes]:
    return (socket.AF_INET if len(host) == 8 else socket.AF_INET6), host[:-4]
