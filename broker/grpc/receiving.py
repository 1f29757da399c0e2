"""ReceiveMessage: POP, with the messages of its answer as a stream. Loop thread.

The call is the peer of the held pop: when its client cancels it or disconnects, the pop is dropped, and takes nothing.
"""

import dataclasses
import logging
import struct
from collections.abc import Iterator

from firearrow._native.grpc.received_messages import ReceivedMessages
from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.message import Property
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.lite import check_unacknowledged, lite_records, pop_fields
from firearrow.broker.grpc.message_codec import OTHERWISE_SENT, RESERVED, message_to
from firearrow.broker.grpc.messages import ProtoMessage, filter_of, milliseconds, set_ms
from firearrow.broker.grpc.receipts import INVISIBLE_MS_MAX, Receipt
from firearrow.broker.grpc.renewals import GIVE_BACK_MS, WARN_MS
from firearrow.broker.grpc.settings import BATCH_MAX, POLL_MS_MAX, ClientSettings, check_lite_topic
from firearrow.broker.grpc.statuses import (
    GrpcRefusal,
    echoed_topic,
    group_name,
    known_group,
    known_topic,
    refusal_of,
)
from firearrow.broker.pop.receipt_handles import NORMAL, kind_of, receipt_handle_text
from firearrow.broker.tables.groups import GroupConfig

log = logging.getLogger("firearrow.grpc")

POLL_MS_MIN = 5000
AUTO_RENEWED_MS = 60_000
ANSWER_BYTES_MAX = 16 << 20
"""Once the bodies of an answer have more, which only inflated ones have, the rest is received again."""
INVISIBLE_MS_MIN = 10_000
FROM_END = "1"
Found = tuple[bytes, Receipt | bytes]
"""A message as a part of the call's answer, with its prefix, and its receipt, or the text of that."""
_SIZE, _PREFIX = struct.Struct(">i"), struct.Struct(">BI")
_OTHERWISE = frozenset(name.encode() for name in OTHERWISE_SENT)
_HIDDEN = frozenset(name.encode() for name in RESERVED)


class ReceivingMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._report_after_ms = 0

    def receive(self, call: Call, request: ProtoMessage) -> None:
        try:
            self._receive(call, request)
        except GrpcRefusal as refusal:
            if refusal.code == "UNAUTHORIZED":
                raise
            self._end(call, refusal.code, refusal.text)

    def _receive(self, call: Call, request: ProtoMessage) -> None:
        group = group_name(request.group.name)
        topic = echoed_topic(request.message_queue.topic)
        fields = {"consumerGroup": group, "topic": topic}
        call.check(RemotingCommand.request(RequestCode.POP_MESSAGE, dict(fields)))
        settings = call.client.check_settings()
        poll_ms, invisible_ms = _poll_ms(call, request, settings), _invisible_ms(request)
        known_topic(self._topics, topic)
        config = known_group(self._groups, group)
        if request.batch_size <= 0:
            handle = self._context.loop.call_later(poll_ms / 1000, self._nothing, call)
            return call.on_end(handle.cancel)
        expression, kind = filter_of(request.filter_expression)
        fields |= {
            "queueId": "-1",
            "maxMsgNums": str(min(request.batch_size, BATCH_MAX)),
            "invisibleTime": str(invisible_ms),
            "pollTime": str(poll_ms),
            "bornTime": str(self._context.clock.now_ms()),
            "initMode": FROM_END,
            "exp": expression,
            "expType": kind,
            "order": "true" if config.consume_orderly else "false",
            "attemptId": request.attempt_id,
        }

        def popped(answer: RemotingCommand) -> None:
            self._answer(call, request, config, answer)

        def too_late(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.SUCCESS:
                taken = self._taken(topic, config, answer)
                self._context.renewals.return_messages(call.client, group, [receipt for _, receipt in taken])

        check_lite_topic(config, topic)
        if config.lite_topic:
            check_unacknowledged(call.client.client_id, self._context.renewals.count(call.client, group))
            command = RemotingCommand.request(
                RequestCode.POP_LITE_MESSAGE, pop_fields(call.client.client_id, fields)
            )
        else:
            command = RemotingCommand.request(RequestCode.POP_MESSAGE, fields)
        return call.ask(command, popped, too_late)

    def _answer(self, call: Call, request: ProtoMessage, group: GroupConfig, answer: RemotingCommand) -> None:
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            return self._nothing(call)
        if answer.code == ResponseCode.POLLING_FULL:
            return self._end(call, "TOO_MANY_REQUESTS", "polling full")
        if answer.code != ResponseCode.SUCCESS:
            refusal = refusal_of(answer)
            return self._end(call, refusal.code, refusal.text)
        find = self._found_lite if group.lite_topic else self._found
        found = find(call, request, group, answer)
        if not found:
            return self._end(call, "MESSAGE_NOT_FOUND", "no match message")
        topic, receipts = request.message_queue.topic.name, [receipt for _, receipt in found]

        def undelivered() -> None:
            whole = [_whole(receipt, topic, group.name) for receipt in receipts]
            self._context.renewals.return_messages(call.client, group.name, whole)

        call.undelivered = undelivered
        call.send(call.method.response(status=messages.status("OK")))
        call.stream.send_framed(b"".join(part for part, _ in found))
        return self._timestamp(call)

    def _found(
        self, call: Call, request: ProtoMessage, group: GroupConfig, answer: RemotingCommand
    ) -> list[Found]:
        topic = request.message_queue.topic
        starts = _starts(answer.text_or("startOffsetInfo", ""))
        encoder = self._encoder(topic, answer, starts)
        again = _received_before(answer.text_or("orderCountInfo", ""))
        body, at, size = answer.body, 0, 0
        found: list[Found] = []
        while at < len(body):
            receipt: Receipt | bytes
            is_full = size > ANSWER_BYTES_MAX
            made = None if is_full or again else encoder.encode(body, at, group.retry_max_times)
            if made is not None:
                part, receipt, record_bytes, body_bytes = made
            else:
                record_bytes = _SIZE.unpack_from(body, at)[0]
                record = decode(memoryview(body)[at : at + record_bytes], False)
                if times := again.get((record.queue_id, record.queue_offset)):
                    record = dataclasses.replace(record, reconsume_times=times)
                receipt = self._receipt(record, topic.name, group.name, answer, starts)
                part, body_bytes = self._part(call, topic, group, record, receipt, is_full=is_full)
            at += record_bytes
            size += body_bytes
            if part and request.auto_renew:
                receipt = _whole(receipt, topic.name, group.name)
                self._context.renewals.begin(call.client, group.name, receipt)
            if part:
                found.append((part, receipt))
        return found

    def _found_lite(
        self, call: Call, request: ProtoMessage, group: GroupConfig, answer: RemotingCommand
    ) -> list[Found]:
        """As `_found`, of lite topics."""
        topic = request.message_queue.topic
        size = 0
        found: list[Found] = []
        for record, receipt in self._taken(topic.name, group, answer):
            part, body_bytes = self._part(
                call, topic, group, record, receipt, is_full=size > ANSWER_BYTES_MAX
            )
            size += body_bytes
            if part:
                found.append((part, receipt))
                if request.auto_renew:
                    self._context.renewals.begin(call.client, group.name, receipt)
        return found

    def _taken(
        self, topic: str, group: GroupConfig, answer: RemotingCommand
    ) -> Iterator[tuple[Record, Receipt]]:
        """The messages that a pop has taken."""
        if group.lite_topic:
            counts = answer.text_or("orderCountInfo", "")
            for record, lite_topic in lite_records(records(answer.body), topic, counts):
                receipt = self._receipt(record, topic, group.name, answer, {})
                yield record, receipt._replace(lite_topic=lite_topic)
            return
        starts = _starts(answer.text_or("startOffsetInfo", ""))
        for record in records(answer.body):
            yield record, self._receipt(record, topic, group.name, answer, starts)

    def _encoder(
        self, topic: ProtoMessage, answer: RemotingCommand, starts: dict[tuple[str, int], int]
    ) -> ReceivedMessages:
        words = (answer.integer(name) for name in ("popTime", "invisibleTime", "reviveQid"))
        return ReceivedMessages(
            topic.name,
            topic.SerializeToString(),
            " ".join(map(str, words)),
            self._context.config.options.broker_name,
            {queue_id: start for (kind, queue_id), start in starts.items() if kind == NORMAL},
            _OTHERWISE,
            _HIDDEN,
        )

    def _part(
        self,
        call: Call,
        topic: ProtoMessage,
        group: GroupConfig,
        record: Record,
        receipt: Receipt,
        *,
        is_full: bool,
    ) -> tuple[bytes, int]:
        """A message with its prefix, and the size of its body; empty: this answer does not have it."""
        if is_full:
            self._give_back(group.name, receipt)
            return b"", 0
        if group.retry_max_times >= 0 and record.reconsume_times > group.retry_max_times:
            self._forward(group.name, receipt)
            return b"", 0
        message = message_to(record, topic.name, self._context.clock.now_ms())
        message.topic.CopyFrom(topic)
        message.system_properties.receipt_handle = receipt.text
        data = call.method.response(message=message).SerializeToString()
        return _PREFIX.pack(0, len(data)) + data, len(message.body)

    def _receipt(
        self,
        record: Record,
        topic: str,
        group: str,
        answer: RemotingCommand,
        starts: dict[tuple[str, int], int],
    ) -> Receipt:
        """Of a message that was popped: a retried one has its handle with it."""
        start = record.queue_offset if answer.text_or("startOffsetInfo", "") else 0
        text = record.properties.get(Property.POP_CHECK_POINT)
        if text is None:
            kind = kind_of(record.topic)
            text = receipt_handle_text(
                starts.get((kind, record.queue_id), start),
                answer.integer("popTime"),
                answer.integer("invisibleTime"),
                answer.integer("reviveQid"),
                record.topic,
                self._context.config.options.broker_name,
                record.queue_id,
                record.queue_offset,
            )
        return Receipt.of(f"{text} {record.physical_offset}", topic, group)

    def _give_back(self, group: str, receipt: Receipt) -> None:
        """The message does not fit in this answer: the group receives it again."""
        self._context.requests.make(receipt.change(group, GIVE_BACK_MS), lambda _: None)

    def _forward(self, group: str, receipt: Receipt) -> None:
        """Put a message that was delivered too often to the dead letters."""

        def forwarded(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.SUCCESS:
                self._context.requests.make(receipt.acknowledgement(group), lambda _: None)
            else:
                self._report(group, refusal_of(answer).text)

        self._context.requests.make(receipt.dead_letter(group), forwarded)

    def _report(self, group: str, reason: str) -> None:
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._report_after_ms:
            self._report_after_ms = now_ms + WARN_MS
            log.info(
                "a message of group %s failed too often, but cannot become a dead letter, and waits: %s",
                group,
                reason,
            )

    def _nothing(self, call: Call) -> None:
        self._end(call, "MESSAGE_NOT_FOUND", "no new message")

    def _end(self, call: Call, code: str, text: str) -> None:
        call.send(call.method.response(status=messages.status(code, text)))
        self._timestamp(call)

    def _timestamp(self, call: Call) -> None:
        last = call.method.response()
        set_ms(last.delivery_timestamp, self._context.clock.now_ms())
        call.finish(last)


def _whole(receipt: Receipt | bytes, topic: str, group: str) -> Receipt:
    return receipt if isinstance(receipt, Receipt) else Receipt.of(receipt.decode(), topic, group)


def records(body: bytes) -> Iterator[Record]:
    """The records of an answer. RecordError."""
    at = 0
    while at < len(body):
        size = _SIZE.unpack_from(body, at)[0]
        yield decode(memoryview(body)[at : at + size], False)
        at += size


def _poll_ms(call: Call, request: ProtoMessage, settings: ClientSettings) -> int:
    """How long the call may wait for messages. GrpcRefusal."""
    left_ms = POLL_MS_MAX + POLL_MS_MIN if call.timeout_s is None else int(call.timeout_s * 1000)
    if request.HasField("long_polling_timeout"):
        asked = milliseconds(request.long_polling_timeout)
    else:
        asked = left_ms - settings.request_timeout_ms // 2
    asked = min(max(asked, POLL_MS_MIN), POLL_MS_MAX)
    if asked <= left_ms:
        return asked
    if left_ms < POLL_MS_MIN:
        text = "The deadline time remaining is not enough for polling, please check network condition"
        raise GrpcRefusal("ILLEGAL_POLLING_TIME", text)
    return left_ms


def _invisible_ms(request: ProtoMessage) -> int:
    """GrpcRefusal."""
    if request.auto_renew:
        return AUTO_RENEWED_MS
    invisible_ms = milliseconds(request.invisible_duration)
    if invisible_ms < INVISIBLE_MS_MIN:
        text = f"the invisibleTime is too small. min is {INVISIBLE_MS_MIN}"
        raise GrpcRefusal("ILLEGAL_INVISIBLE_TIME", text)
    if invisible_ms > INVISIBLE_MS_MAX:
        text = f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}"
        raise GrpcRefusal("ILLEGAL_INVISIBLE_TIME", text)
    return invisible_ms


def _starts(text: str) -> dict[tuple[str, int], int]:
    """`startOffsetInfo` of an answer: (kind of topic, queue) → where the pop began to read."""
    found = (entry.split(" ") for entry in text.split(";") if entry)
    return {(kind, int(queue_id)): int(start) for kind, queue_id, start in found}


def _received_before(text: str) -> dict[tuple[int, int], int]:
    """`orderCountInfo` of a pop in order, `<kind> qo<queue>%<queue offset> <times>` of each message that was popped
    before: (queue, queue offset) → times. What it has of whole queues is not read."""
    found: dict[tuple[int, int], int] = {}
    for entry in text.split(";"):
        place, _, times = entry.partition(" ")[2].partition(" ")
        queue_id, is_message, offset = place.removeprefix("qo").partition("%")
        if is_message:
            found[int(queue_id), int(offset)] = int(times)
    return found
