"""PullMessage, UpdateOffset, GetOffset and QueryOffset, which Apache's proxy does not implement. Loop thread."""

from collections.abc import Iterator
from dataclasses import replace

from firearrow._native.store.log.batch import items_of
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.message import INNER_BATCH
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.message_codec import message_to
from firearrow.broker.grpc.messages import ProtoMessage, filter_of, milliseconds
from firearrow.broker.grpc.receiving import ANSWER_BYTES_MAX, records
from firearrow.broker.grpc.settings import BATCH_MAX, POLL_MS_MAX
from firearrow.broker.grpc.statuses import GrpcRefusal, echoed_topic, expect, group_name, refusal_of
from firearrow.broker.tables.offsets import QUEUE_ID_MAX

NOTHING = frozenset((ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY))
BEGINNING, END, TIMESTAMP = 0, 1, 2
"""QueryOffsetPolicy."""


class OffsetMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context

    def pull(self, call: Call, request: ProtoMessage) -> None:
        expression, kind = filter_of(request.filter_expression)
        fields = _queue(request) | {
            "queueOffset": str(request.offset),
            "maxMsgNums": str(min(max(request.batch_size, 1), BATCH_MAX)),
            "sysFlag": str(int(PullFlag.PULL_SUBSCRIPTION | PullFlag.PULL_SUSPEND)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(min(max(milliseconds(request.long_polling_timeout), 0), POLL_MS_MAX)),
            "subscription": expression,
            "expressionType": kind,
            "subVersion": "0",
        }

        def pulled(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                call.send(call.method.response(status=messages.status("ILLEGAL_OFFSET", answer.remark or "")))
            elif answer.code in NOTHING:
                call.send(call.method.response(status=messages.status("MESSAGE_NOT_FOUND", "no new message")))
            elif answer.code != ResponseCode.SUCCESS:
                raise refusal_of(answer)
            else:
                return self._send(call, request, answer)
            return call.finish(call.method.response(next_offset=answer.integer("nextBeginOffset")))

        call.ask(RemotingCommand.request(RequestCode.PULL_MESSAGE, fields), pulled)

    def _send(self, call: Call, request: ProtoMessage, answer: RemotingCommand) -> None:
        now_ms, size = self._context.clock.now_ms(), 0
        call.send(call.method.response(status=messages.status("OK")))
        following = answer.integer("nextBeginOffset")
        for record in _taken_apart(answer.body, request.offset):
            if size > ANSWER_BYTES_MAX:
                following = record.queue_offset
                break
            message = message_to(record, record.topic, now_ms)
            message.topic.CopyFrom(request.message_queue.topic)
            size += len(message.body)
            call.send(call.method.response(message=message))
        call.finish(call.method.response(next_offset=following))

    def update_offset(self, call: Call, request: ProtoMessage) -> None:
        if request.offset < 0:
            raise GrpcRefusal("ILLEGAL_OFFSET", f"there is no offset {request.offset}")
        fields = _queue(request) | {"commitOffset": str(request.offset)}

        def updated(answer: RemotingCommand) -> None:
            expect(answer)
            call.finish(call.method.response(status=messages.status("OK")))

        call.ask(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields), updated)

    def get_offset(self, call: Call, request: ProtoMessage) -> None:
        fields = _queue(request) | {"setZeroIfNotFound": "false"}

        def found(answer: RemotingCommand) -> None:
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                raise GrpcRefusal("OFFSET_NOT_FOUND", "the group has no offset of this queue")
            expect(answer)
            self._finish(call, answer)

        call.ask(RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, fields), found)

    def query_offset(self, call: Call, request: ProtoMessage) -> None:
        fields = _topic_queue(request)
        policy = request.query_offset_policy
        code = {BEGINNING: RequestCode.GET_MIN_OFFSET, END: RequestCode.GET_MAX_OFFSET}.get(policy)
        if policy == TIMESTAMP:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            fields["timestamp"] = str(milliseconds(request.timestamp))
        if code is None:
            raise GrpcRefusal("BAD_REQUEST", f"query_offset_policy {policy} is not one of 0, 1 and 2")

        def found(answer: RemotingCommand) -> None:
            expect(answer)
            self._finish(call, answer)

        call.ask(RemotingCommand.request(code, fields), found)

    def _finish(self, call: Call, answer: RemotingCommand) -> None:
        response = call.method.response(status=messages.status("OK"))
        response.offset = answer.integer("offset")
        call.finish(response)


def _taken_apart(body: bytes, start: int) -> Iterator[Record]:
    """The messages of an answer from queue offset `start` on; an inner batch as several. RecordError, PutRefused."""
    for record in records(body):
        if record.sys_flag & INNER_BATCH:
            sys_flag = record.sys_flag & ~INNER_BATCH
            for at, (flag, text, properties) in enumerate(items_of(record.body), record.queue_offset):
                if at >= start:
                    single = replace(record, queue_offset=at, sys_flag=sys_flag, flag=flag)
                    yield replace(single, body=text, properties_bytes=properties)
        else:
            yield record


def _queue(request: ProtoMessage) -> dict[str, str]:
    """GrpcRefusal."""
    return _topic_queue(request) | {"consumerGroup": group_name(request.group.name)}


def _topic_queue(request: ProtoMessage) -> dict[str, str]:
    """GrpcRefusal."""
    queue = request.message_queue
    name = echoed_topic(queue.topic)
    if not 0 <= queue.id <= QUEUE_ID_MAX:
        raise GrpcRefusal("BAD_REQUEST", f"there is no queue {queue.id}")
    return {"topic": name, "queueId": str(queue.id)}
