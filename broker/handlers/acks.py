"""Acknowledges popped messages and changes their invisible time. Loop thread.

ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053).
"""

import base64
import binascii
from collections.abc import Callable

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.store.message_store import MessageStore, PutRefused
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.lite.acks import CHANGED, NOT_CHANGED, LiteAcks, changed, check_invisible
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.checkpoints import AckMessage
from firearrow.broker.pop.receipt_handles import (
    ORDER_REVIVE_QUEUE,
    InvalidReceiptHandle,
    ReceiptHandle,
    check_point_key,
    real_topic,
)
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.topics import TopicTable

BATCH_MAX = 1024
BITS_BYTES_MAX = 128
OFFSETS_MAX = 128


class AcksHandler:
    """`make_durable()` makes offsets, the acknowledgements of ordered pops, as durable as the flush mode."""

    def __init__(
        self,
        store: MessageStore,
        write_batch: WriteBatch,
        ack_service: AckService,
        topics: TopicTable,
        config: Config,
        lite: LiteAcks,
        make_durable: Callable[[], None],
    ) -> None:
        self._store = store
        self._write_batch = write_batch
        self._ack_service = ack_service
        self._topics = topics
        self._config = config
        self._lite = lite
        self._make_durable = make_durable

    def routes(self) -> Routes:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.acknowledge_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible,
        }

    def ack(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        if request.text_or("liteTopic", "").strip():
            return self._lite.ack(request)
        group, topic, queue_id, offset, receipt_handle = self._fields(request, peer)
        low, high = self._span(topic, queue_id)
        if not low <= offset <= high:
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            raise Refusal(ResponseCode.NO_MESSAGE, remark)
        if receipt_handle.is_ordered:
            self._ack_service.acknowledge_in_order(
                group, topic, queue_id, offset, receipt_handle.pop_ms, receipt_handle.invisible_ms
            )
            if not request.is_oneway:
                self._make_durable()
            return request.answer()
        key = check_point_key(group, topic, queue_id, request.text("extraInfo"))
        end = self._put_alike(key, offset)
        if end < 0:
            acks = AckMessage.of_one(group, topic, queue_id, offset, receipt_handle)
            end = self._put(acks, receipt_handle, key)
        return self._when_stored(request, peer, request.answer(), end)

    def acknowledge_batch(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        fields = _parsed(request.body) if request.body else {}
        entries = json_fields.items(fields.get("acks"), "acks")
        if not entries:
            raise Refusal(ResponseCode.NO_MESSAGE, "the body lists no acknowledgements")
        if len(entries) > BATCH_MAX:
            remark = f"{len(entries)} acks in one request, at most {BATCH_MAX} are allowed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        broker = json_fields.text(fields, "brokerName", self._config.options.broker_name)
        end = 0
        for entry in entries:
            try:
                end = self._entry(json_fields.members(entry, "acks"), broker) or end
            except ValueError as error:
                raise Refusal(ResponseCode.INVALID_PARAMETER, f"acks: {error}") from None
        return self._when_stored(request, peer, request.answer(), end)

    def change_invisible(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        if request.text_or("liteTopic", "").strip():
            return self._lite.change_invisible(request)
        group, topic, queue_id, offset, receipt_handle = self._fields(request, peer)
        invisible_ms = request.integer("invisibleTime")
        check_invisible(invisible_ms, self._config)
        low, high = self._span(topic, queue_id)
        if not low <= offset < high:
            return request.answer(ResponseCode.NO_MESSAGE)
        if receipt_handle.is_ordered:
            visible_ms = self._ack_service.change_invisible_in_order(
                group, topic, queue_id, offset, receipt_handle, invisible_ms
            )
            if visible_ms is None:
                return request.answer(remark=CHANGED, ext=NOT_CHANGED)
            return request.answer(
                remark=CHANGED,
                ext=changed(visible_ms - receipt_handle.pop_ms, receipt_handle.pop_ms, receipt_handle),
            )
        suspend = request.boolean_or("suspend", False)
        try:
            pop_ms, end = self._ack_service.change_invisible(
                group, topic, queue_id, offset, receipt_handle, invisible_ms, suspend
            )
        except PutRefused as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, refused.status.name) from None
        answer = request.answer(remark=CHANGED, ext=changed(invisible_ms, pop_ms, receipt_handle))
        return self._when_stored(request, peer, answer, end)

    def _fields(self, request: RemotingCommand, peer: Peer) -> tuple[str, str, int, int, ReceiptHandle]:
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id, offset = request.integer("queueId", 32), request.integer("offset")
        known = self._topics.get(topic)
        if known is None:
            remark = f"topic[{topic}] not exist, apply first please! "
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        if not 0 <= queue_id < known.read_queues:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{known.read_queues}] consumer:[{peer.remote[0]}:{peer.remote[1]}]"
            )
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        try:
            return group, topic, queue_id, offset, ReceiptHandle.of(request.text("extraInfo"))
        except InvalidReceiptHandle as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None

    def _span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of the queue and its end. What is not confirmed counts: its consumer had it from the former
        master, or before a power cut."""
        end = max(self._store.next_offset(topic, queue_id), 0)
        return self._store.reader.min_offset(topic, queue_id), end

    def _entry(self, fields: json_fields.Members, broker: str) -> int:
        """Put the acknowledgements of one check point, with short or long member names; the end of the log, 0: nothing
        was staged. Raises ValueError."""

        def text(short: str, long: str) -> str:
            return json_fields.text(fields, short if short in fields else long)

        def number(short: str, long: str, high: int = json_fields.INT_MAX) -> int:
            return json_fields.number(fields, short if short in fields else long, high=high)

        group = text("c", "consumerGroup")
        topic = real_topic(text("t", "topic"), group, text("r", "retry"))
        queue_id, start = number("q", "queueId"), number("so", "startOffset", json_fields.LONG_MAX)
        pop_ms = number("pt", "popTime", json_fields.LONG_MAX)
        invisible_ms = number("it", "invisibleTime", json_fields.LONG_MAX)
        revive_queue = number("rq", "reviveQueueId")
        low, high = self._span(topic, queue_id)
        offsets = [start + bit for bit in _bits(fields["b"] if "b" in fields else fields.get("bitSet"))]
        offsets = [offset for offset in offsets if low <= offset <= high]
        if not offsets or topic not in self._topics:
            return 0
        if revive_queue == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_service.acknowledge_in_order(group, topic, queue_id, offset, pop_ms, invisible_ms)
            self._make_durable()
            return 0
        acks = AckMessage(topic, group, queue_id, start, pop_ms, broker, tuple(offsets), single=False)
        receipt_handle = ReceiptHandle(start, pop_ms, invisible_ms, revive_queue, "", broker)
        return self._put(acks, receipt_handle)

    def _put_alike(self, key: bytes, offset: int) -> int:
        """Put one more acknowledgement of a check point; the end of the log, -1: `_put` is needed."""
        try:
            return self._ack_service.templates.put(key, offset)
        except PutRefused as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, refused.status.name) from None

    def _put(self, acks: AckMessage, receipt_handle: ReceiptHandle, key: bytes | None = None) -> int:
        try:
            return self._ack_service.ack(acks, receipt_handle.revive_queue, receipt_handle.invisible_ms, key)
        except PutRefused as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, refused.status.name) from None

    def _when_stored(
        self, request: RemotingCommand, peer: Peer, answer: RemotingCommand, end: int
    ) -> RemotingCommand | None:
        """`end`: of the log; 0: nothing was staged."""
        if end == 0:
            return answer
        self._write_batch.reply_after(
            end, (name_rules.TIMER_TOPIC, 0), peer, None if request.is_oneway else answer
        )
        return None


def _parsed(body: bytes) -> json_fields.Members:
    try:
        return json_fields.members_or_none(loads_body(body), "body")
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _bits(text: object) -> list[int]:
    """Decode a base64 bit set, lowest bit of the first byte first (Java's BitSet). Raises ValueError."""
    if not isinstance(text, str) or len(text) > 2 * BITS_BYTES_MAX:
        raise ValueError("the bit set is missing, not a string or too long")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the bit set is not base64: {error}") from None
    number = int.from_bytes(data, "little")
    bits = [bit for bit in range(number.bit_length()) if number >> bit & 1]
    if len(bits) > OFFSETS_MAX:
        raise ValueError(
            f"{len(bits)} acknowledgements of one check point, at most {OFFSETS_MAX} are allowed"
        )
    return bits
