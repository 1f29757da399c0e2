"""Requests of the broker to a client, as commands of Telemetry, and their results. Pure functions.

CHECK_TRANSACTION_STATE, NOTIFY_UNSUBSCRIBE_LITE, GET_CONSUMER_RUNNING_INFO, of which clients of gRPC know their stack
traces alone, and CONSUME_MESSAGE_DIRECTLY. A transaction's id is the message's id and where its half message is: so a
transaction can be ended as long as the half message exists, also after a restart or a promotion.
"""

import time
from typing import NamedTuple

import orjson

from firearrow._native.store.log.record import RecordError, decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.message_codec import message_to, number
from firearrow.broker.grpc.messages import CODES, ProtoMessage
from firearrow.broker.grpc.statuses import GrpcRefusal

RESULTS = {CODES["OK"]: "CR_SUCCESS", CODES["FAILED_TO_CONSUME_MESSAGE"]: "CR_LATER"}
"""Others, such as MESSAGE_CORRUPTED, become CR_RETURN_NULL."""
SEPARATOR = "-"


class HalfMessage(NamedTuple):
    """A half message: its id, and where it is: its offset in the queue of half messages, and in the log."""

    message_id: str
    queue_offset: int
    physical_offset: int

    @property
    def transaction_id(self) -> str:
        return SEPARATOR.join(map(str, self))

    @staticmethod
    def of(transaction_id: str) -> "HalfMessage":
        """GrpcRefusal: this is not the id of a transaction."""
        words = transaction_id.rsplit(SEPARATOR, 2)
        offsets = [number(word) for word in words[1:]]
        if len(offsets) != 2 or offsets[0] is None or offsets[1] is None:
            text = f"transaction_id {transaction_id[:80]!r} is not one that this broker has given"
            raise GrpcRefusal("INVALID_TRANSACTION_ID", text)
        return HalfMessage(words[0], offsets[0], offsets[1])


def command_of(request: RemotingCommand, nonce: str) -> ProtoMessage | None:
    """The TelemetryCommand for a request to the client; None: clients of gRPC do not know it."""
    command = messages.TelemetryCommand()
    if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        command.print_thread_stack_trace_command.nonce = nonce
        return command
    if request.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
        command.notify_unsubscribe_lite_command.lite_topic = request.text_or("liteTopic", "")
        return command
    now_ms = time.time_ns() // 1_000_000
    try:
        record = decode(request.body, False)
    except RecordError:
        return None
    if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        command.verify_message_command.nonce = nonce
        command.verify_message_command.message.CopyFrom(message_to(record, record.topic, now_ms))
        return command
    if request.code != RequestCode.CHECK_TRANSACTION_STATE:
        return None
    asked = command.recover_orphaned_transaction_command
    asked.message.CopyFrom(message_to(record, record.topic, now_ms))
    offsets = request.integer("tranStateTableOffset"), request.integer("commitLogOffset")
    asked.transaction_id = HalfMessage(request.text_or("transactionId", ""), *offsets).transaction_id
    return command


def result_of(request: RemotingCommand, command: ProtoMessage) -> RemotingCommand:
    """The answer to a request, of what the client answered to its command."""
    if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        info = {
            "jstack": command.thread_stack_trace.thread_stack_trace,
            "mqPopTable": {},
            "mqTable": {},
            "properties": {},
            "statusTable": {},
            "subscriptionSet": [],
            "userConsumerInfo": {},
        }
        return request.answer(body=orjson.dumps(info))
    result = {
        "autoCommit": True,
        "consumeResult": RESULTS.get(command.status.code, "CR_RETURN_NULL"),
        "order": False,
        "remark": command.status.message,
        "spentTimeMills": 0,
    }
    return request.answer(ResponseCode.SUCCESS, body=orjson.dumps(result))
