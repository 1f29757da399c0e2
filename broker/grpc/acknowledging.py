"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue. Loop thread.

They are requests of remoting with what the receipt handle states. A message whose invisible time the broker has renewed
has a newer handle than its client knows, which counts.
"""

from collections.abc import Callable

from firearrow._native.fastpath.ack_templates import AckTemplates
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.grpc.plain_acks import AckRules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call, Then
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.messages import ProtoMessage, milliseconds
from firearrow.broker.grpc.receipts import INVISIBLE_MS_MAX, NOT_KNOWN, Receipt
from firearrow.broker.grpc.statuses import GrpcRefusal, code_of, group_name, lite_topic_name, topic_name

ENTRIES_MAX = 1024


class AcknowledgingMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context

    def rules(self, sender: Sender, templates: AckTemplates) -> AckRules:
        """Of acknowledgements that need none of this (see plain_acks.pxd)."""
        renewals = self._context.renewals
        times = self._context.clients.times
        return AckRules(
            sender, templates, times, _may_use, renewals.owners, renewals.find, renewals.resume, _failed
        )

    def _names(self, call: Call, request: ProtoMessage) -> tuple[str, str]:
        """Group and topic, whose messages the client may acknowledge. GrpcRefusal."""
        group, topic = group_name(request.group.name), topic_name(request.topic.name)
        call.check(RemotingCommand.request(RequestCode.ACK_MESSAGE, {"consumerGroup": group, "topic": topic}))
        return group, topic

    def _with_newest(
        self,
        call: Call,
        names: tuple[str, str],
        request: ProtoMessage,
        then: Callable[[Receipt], None],
        refused: Callable[[GrpcRefusal], None],
    ) -> None:
        """`then(receipt)`: the newest handle of the message that the request names, or its entry; once it is known."""
        group, topic = names
        renewals = self._context.renewals

        def settled() -> None:
            try:
                newest = renewals.newest(call.client, group, receipt)
                if newest.visible_ms <= self._context.clock.now_ms():
                    raise GrpcRefusal("INVALID_RECEIPT_HANDLE", "receipt handle is expired")
                then(newest)
            except GrpcRefusal as refusal:
                refused(refusal)

        try:
            if request.lite_topic or self._is_lite(group):
                lite_topic_name(request.lite_topic)
            receipt = Receipt.of(request.receipt_handle, topic, group, request.lite_topic)
        except GrpcRefusal as refusal:
            return refused(refusal)
        return renewals.when_settled(call.client, group, receipt, settled)

    def _ask(self, call: Call, group: str, receipt: Receipt, request: RemotingCommand, then: Then) -> None:
        """Make a request by which the client is done with the message, if it succeeds: also once the call has ended.
        GrpcRefusal."""
        renewals = self._context.renewals
        handle = renewals.pause(call.client, group, receipt)

        def settle(answer: RemotingCommand) -> None:
            renewals.resume(handle, is_done=answer.code == ResponseCode.SUCCESS)

        def answered(answer: RemotingCommand) -> None:
            settle(answer)
            then(answer)

        try:
            call.ask(request, answered, settle)
        except GrpcRefusal:
            renewals.resume(handle, is_done=False)
            raise

    def _is_lite(self, group: str) -> bool:
        config = self._context.tables.groups.get(group)
        return config is not None and bool(config.lite_topic)

    # ---- AckMessage ----

    def ack(self, call: Call, request: ProtoMessage) -> None:
        group, topic = self._names(call, request)
        call.let_through()
        if not request.entries:
            raise GrpcRefusal("BAD_REQUEST", "the request has no entries")
        if len(request.entries) > ENTRIES_MAX:
            text = f"{len(request.entries)} entries in one request, at most {ENTRIES_MAX} are allowed"
            raise GrpcRefusal("BAD_REQUEST", text)
        response = call.method.response()
        left = len(request.entries)

        def done(result: ProtoMessage, code: str, text: str) -> None:
            nonlocal left
            result.status.CopyFrom(messages.status(code, text))
            left -= 1
            if left == 0:
                response.status.CopyFrom(messages.common_status(response.entries))
                call.finish(response)

        for entry in request.entries:
            result = response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
            self._ack_one(call, (group, topic), entry, _bind(done, result))

    def _ack_one(
        self, call: Call, names: tuple[str, str], entry: ProtoMessage, done: Callable[[str, str], None]
    ) -> None:
        group, _ = names

        def ack(receipt: Receipt) -> None:
            self._ask(
                call, group, receipt, receipt.acknowledgement(group), lambda answer: done(*_result(answer))
            )

        self._with_newest(call, names, entry, ack, lambda refusal: done(refusal.code, refusal.text))

    # ---- ChangeInvisibleDuration ----

    def change(self, call: Call, request: ProtoMessage) -> None:
        group, topic = self._names(call, request)
        invisible_ms = milliseconds(request.invisible_duration)
        if invisible_ms > INVISIBLE_MS_MAX:
            text = f"the invisibleTime is too large. max is {INVISIBLE_MS_MAX}"
            raise GrpcRefusal("ILLEGAL_INVISIBLE_TIME", text)
        if invisible_ms < 0:
            raise GrpcRefusal("ILLEGAL_INVISIBLE_TIME", "the invisibleTime is too small. min is 0")

        def change(receipt: Receipt) -> None:
            fields = receipt.fields(group) | {"invisibleTime": str(invisible_ms)}
            if request.suspend:
                fields["suspend"] = "true"

            def changed(answer: RemotingCommand) -> None:
                code, text = _result(answer)
                response = call.method.response(status=messages.status(code, text))
                response.receipt_handle = request.receipt_handle
                if answer.code == ResponseCode.SUCCESS:
                    response.receipt_handle = receipt.changed(answer).text
                call.finish(response)

            asked = RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
            self._ask(call, group, receipt, asked, changed)

        self._with_newest(call, (group, topic), request, change, call.refuse)

    # ---- ForwardMessageToDeadLetterQueue ----

    def forward(self, call: Call, request: ProtoMessage) -> None:
        group, topic = self._names(call, request)

        def acknowledged(answer: RemotingCommand) -> None:
            call.finish(call.method.response(status=messages.status("OK", "0")))  # as Apache's proxy has it

        def forward(receipt: Receipt) -> None:
            if receipt.log_offset == NOT_KNOWN:
                raise GrpcRefusal("INVALID_RECEIPT_HANDLE", "commit log offset is empty")

            def forwarded(answer: RemotingCommand) -> None:
                if answer.code != ResponseCode.SUCCESS:
                    raise GrpcRefusal(*_result(answer))
                self._ask(call, group, receipt, receipt.acknowledgement(group), acknowledged)

            call.ask(receipt.dead_letter(group, request.message_id), forwarded)

        self._with_newest(call, (group, topic), request, forward, call.refuse)


def _may_use(group: str, topic: str) -> bool:
    try:
        group_name(group)
        topic_name(topic)
    except GrpcRefusal:
        return False
    return True


def _failed(reply: bytes, code: int, remark: str | None) -> bytes:
    """The answer to a plain acknowledgement whose reply was this one, if it had been stored and confirmed in time."""
    request = RemotingCommand.request(RequestCode.ACK_MESSAGE, {})
    response = messages.AckMessageResponse.FromString(reply)
    for entry in response.entries:
        entry.status.CopyFrom(messages.status(*_result(request.answer(code, remark))))
    response.status.CopyFrom(messages.common_status(response.entries))
    return response.SerializeToString()  # type: ignore[no-any-return]


def _bind(done: Callable[[ProtoMessage, str, str], None], result: ProtoMessage) -> Callable[[str, str], None]:
    return lambda code, text: done(result, code, text)


def _result(answer: RemotingCommand) -> tuple[str, str]:
    if answer.code == ResponseCode.SUCCESS:
        return "OK", "OK"
    if answer.code == ResponseCode.NO_MESSAGE:  # its offset is not one of the queue's
        return "INVALID_RECEIPT_HANDLE", answer.remark or "there is no such message"
    code = code_of(answer)
    return code, answer.remark or code
