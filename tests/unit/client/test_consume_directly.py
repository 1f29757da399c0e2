"""Consume directly: the name of each result, and the error for a group that is not here."""

import asyncio
import json

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.consume_results import Accepted, ConsumeResult, ConsumeService
from firearrow.client.consume.direct import answer_consume_directly
from tests.client.concurrent_harness import ConcurrentHarness, answering
from tests.client.orderly_harness import OrderlyHarness
from tests.client.records import received, record

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("answer", "result"),
    [(None, "CR_SUCCESS"), (False, "CR_LATER"), (Accepted(0), "CR_SUCCESS"), ("x", "CR_THROW_EXCEPTION")],
)
async def test_a_concurrent_handler_is_called_once_and_nothing_else_happens(
    answer: object, result: str
) -> None:
    harness = ConcurrentHarness(answering(answer))
    (message,) = received(QUEUE, [7])
    response = await harness.service.consume_directly(message, "broker-b")
    assert (response["consumeResult"], response["order"], response["autoCommit"]) == (result, False, True)
    assert message.broker_name == "broker-b"
    assert (harness.offsets.updates, harness.back.given, harness.stats.good) == ([], [], 0)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (None, "CR_SUCCESS"),
        (False, "CR_LATER"),
        (ConsumeResult.COMMIT, "CR_COMMIT"),
        (ConsumeResult.ROLLBACK, "CR_ROLLBACK"),
    ],
)
async def test_an_orderly_handler_answers_for_itself(answer: object, result: str) -> None:
    harness = OrderlyHarness(answering(answer), auto_commit=False)
    response = await harness.service.consume_directly(*received(QUEUE, [7]), "broker-a")
    assert (response["consumeResult"], response["order"], response["autoCommit"]) == (result, True, False)


async def test_what_a_handler_raised_is_reported() -> None:
    async def handler(messages: list[ReceivedMessage]) -> None:
        raise ValueError("no stock")

    response = await ConcurrentHarness(handler).service.consume_directly(*received(QUEUE, [7]), "broker-a")
    assert (response["consumeResult"], response["remark"]) == ("CR_THROW_EXCEPTION", "ValueError: no stock")


async def asked(body: bytes, group: str = "workers") -> tuple[RemotingCommand, list[str]]:
    topics: list[str] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0)
        topics.extend(message.topic for message in messages)

    service = ConcurrentHarness(handler).service
    services: dict[str, ConsumeService] = {"workers": service}
    request = RemotingCommand.request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        {"consumerGroup": group, "brokerName": "broker-a", "msgId": "x"},
        body,
    )
    return await answer_consume_directly(request, services.get, lambda flag, stored: stored), topics


async def test_a_broker_gets_the_result_as_json() -> None:
    answer, topics = await asked(record(b"body", "%RETRY%workers", RETRY_TOPIC="orders"))
    assert answer.code == 0
    assert topics == ["orders"]
    response = json.loads(answer.body)
    assert response.pop("spentTimeMills") >= 0
    assert response == {"autoCommit": True, "consumeResult": "CR_SUCCESS", "order": False, "remark": None}


async def test_a_group_that_is_not_here_is_refused() -> None:
    answer, _ = await asked(record(b"body"), "strangers")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The Consumer Group <strangers> not exist in this consumer",
    )


@pytest.mark.parametrize("body", [b"", record(b"a") + record(b"b")])
async def test_just_one_message_is_wanted(body: bytes) -> None:
    answer, _ = await asked(body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("the body ")
