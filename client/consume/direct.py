"""CONSUME_MESSAGE_DIRECTLY (309): an operator has one message consumed at once and gets the result.

Offsets stay as they are, and a failed message is not sent back. Event loop only.
"""

import json
import time
from collections.abc import Callable

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import ConsumeResult, ConsumeService, Verdict
from firearrow.client.consume.invoke_listener import ListenerInvoker

RESULTS = {
    ConsumeResult.SUCCESS: "CR_SUCCESS",
    ConsumeResult.RETRY_LATER: "CR_LATER",
    ConsumeResult.SUSPEND: "CR_LATER",
    ConsumeResult.COMMIT: "CR_COMMIT",
    ConsumeResult.ROLLBACK: "CR_ROLLBACK",
}
Opener = Callable[[int, bytes], bytes]


async def consume_directly(
    message: ReceivedMessage,
    broker_name: str,
    calls: ListenerInvoker,
    *,
    orderly: bool,
    auto_commit: bool = True,
) -> dict[str, object]:
    """Java's ConsumeMessageDirectlyResult."""
    message.broker_name = broker_name
    queue = MessageQueue(message.topic, broker_name, message.queue_id)
    calls.restore_topics([message], queue)
    began = time.monotonic()
    verdict = await calls.judge_call([message])
    return {
        "autoCommit": auto_commit,
        "consumeResult": _result(verdict),
        "order": orderly,
        "remark": None if verdict.error is None else f"{type(verdict.error).__name__}: {verdict.error}",
        "spentTimeMills": round((time.monotonic() - began) * 1000),
    }


async def answer_consume_directly(
    request: RemotingCommand, service_of: Callable[[str], ConsumeService | None], opener: Opener
) -> RemotingCommand:
    """The answer to a broker's request 309.

    `service_of(group)`: the service of the group, None if it is not here.
    """
    group = request.text("consumerGroup")
    service = service_of(group)
    if service is None:
        return request.answer(
            ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
        )
    broker_name = request.text_or("brokerName", "")
    messages = decode_messages(request.body, broker_name, opener)
    if len(messages) != 1:
        return request.answer(
            ResponseCode.SYSTEM_ERROR, f"the body must contain one message, not {len(messages)}"
        )
    result = await service.consume_directly(messages[0], broker_name)
    return request.answer(body=json.dumps(result, separators=(",", ":")).encode())


def _result(verdict: Verdict) -> str:
    return "CR_THROW_EXCEPTION" if verdict.error is not None else RESULTS[verdict.result]
