"""TransactionService: the parts of transactions put together, their start from the store, their offsets. Loop thread.

At start the op messages that are not worked off say which half messages have ended; the journal adds the commits whose
mark a torn write lost. The offsets of CID_RMQ_SYS_TRANS are kept as Apache keeps them, so that it can go on from there.
"""

import logging
import socket
from collections.abc import Iterator

from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import PutRefused
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.base.peer import Peer
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables import name_rules
from firearrow.broker.transactions import half_message
from firearrow.broker.transactions.check_sender import CheckRequestSender
from firearrow.broker.transactions.check_service import CheckService
from firearrow.broker.transactions.end_transaction import Decision, EndTransactionService
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
        self._decided: list[int] = []
        self._kept: dict[str, int] = {}
        self._ip = context.config.options.broker_ip or socket.inet_ntop(*_address(appender.store_host))
        self._open_halves = OpenHalfMessages(0, 0)
        self._op_writer = OpMessageWriter(
            context.write_batch,
            appender,
            self._open_halves,
            context.config,
            context.clock,
            context.stats,
            settled=self._keep_offsets,
        )
        self._end_service = EndTransactionService(context, appender, self._open_halves, self._op_writer)
        check_sender = CheckRequestSender(
            context.tables.clients, context.config.options.broker_name, appender.store_host
        )
        self._checks = CheckService(
            context, appender, self._open_halves, self._op_writer, check_sender, settled=self._keep_offsets
        )

    def restore(self, name: str, number: int, value: int) -> None:
        """The journal says that half message `value` was committed, and the log holds the final message."""
        self._decided.append(value)

    def start(self) -> None:
        self._open_halves.base = self._offset(name_rules.HALF_TOPIC)
        self._open_halves.op_base = self._offset(name_rules.OP_HALF_TOPIC)
        at, high = self._open_halves.op_base, self._store.reader.max_offset(name_rules.OP_HALF_TOPIC, 0)
        self._op_writer.one_each = self._one_each(high)
        while at < high:
            self._load_page(at)
            at += PAGE
        for half_offset in self._decided:
            if self._open_halves.is_open(half_offset):
                log.warning("the mark of committed half message %d was lost, it is written now", half_offset)
                self._op_writer.queue_mark(half_offset)
        self._decided.clear()
        self._op_writer.write_queued()
        self._keep_offsets()
        self._checks.start()

    def stop(self) -> None:
        self._checks.stop()
        self._keep_offsets()

    def prepare(self, message: Message) -> None:
        """Make a half message of one that begins a transaction. Refusal."""
        options = self._config.options
        if options.reject_transactions:
            remark = f"the broker[{self._ip}] sending transaction message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        waiting = self._store.reader.max_offset(name_rules.HALF_TOPIC, 0) - self._open_halves.base
        if waiting >= options.halves_max:
            remark = f"{waiting} half messages wait, at most {options.halves_max}"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
        half_message.make_half(message)

    def end(self, decision: Decision, peer: Peer, answer: RemotingCommand | None) -> bool:
        """False: it had ended before, and nobody answers. Refusal."""
        return self._end_service.end(decision, peer, answer)

    def resume(self, message_id: str, peer: Peer, answer: RemotingCommand | None) -> None:
        """Ask again for what was discarded; `answer` goes when it is stored. Refusal."""
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

    def _load_page(self, at: int) -> None:
        for queue_offset, body in enumerate(self._op_bodies(at, PAGE), at):
            self._open_halves.load(queue_offset, op_half_offsets(body))

    def _one_each(self, high: int) -> bool:
        """Whether the last op message is in the form of Apache 4, which may get its store back."""
        last = next(self._op_bodies(max(high - 1, 0), 1), b"")
        return last.isdigit()

    def _op_bodies(self, at: int, count: int) -> Iterator[bytes]:
        """Of the op messages from there on; empty if one is none."""
        for entry in self._store.reader.entries(name_rules.OP_HALF_TOPIC, 0, at, count):
            raw = self._store.reader.record_at(entry.physical_offset)
            record = None if raw is None else decode(raw, False)
            yield record.body if record is not None and record.properties.get(Property.TAGS) == TAG else b""

    def _offset(self, topic: str) -> int:
        low, high = self._store.reader.min_offset(topic, 0), self._store.reader.max_offset(topic, 0)
        committed = self._offsets.committed(half_message.GROUP, topic, 0)
        self._kept[topic] = low if committed < 0 else committed
        return min(max(committed, low), high)

    def _keep_offsets(self) -> None:
        """They count if the log holds the copies and marks that they speak of."""
        end = 0 if self._config.options.sync_flush else self._store.written
        for topic, offset in (
            (name_rules.HALF_TOPIC, self._open_halves.base),
            (name_rules.OP_HALF_TOPIC, self._open_halves.op_base),
        ):
            if self._kept[topic] != offset:
                self._offsets.commit(half_message.GROUP, topic, 0, offset, end)
                self._kept[topic] = offset


def _address(host: bytes) -> tuple[int, bytes]:
    return (socket.AF_INET if len(host) == 8 else socket.AF_INET6), host[:-4]
