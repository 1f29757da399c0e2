"""41 and 42: the response lists exactly the queues that the client owns."""

import json

import pytest

from firearrow.broker.handlers.lock_queues import QUEUES_MAX
from tests.support.handler_harness import HandlerHarness


def body(client: str, *queue_ids: int, **more: object) -> bytes:
    queues = [{"brokerName": "broker-a", "queueId": n, "topic": "T"} for n in queue_ids]
    return json.dumps({"clientId": client, "consumerGroup": "G", "mqSet": queues} | more).encode()


def test_a_locked_queue_is_not_in_the_response_to_another_client() -> None:
    harness = HandlerHarness()
    assert harness.ask(41, body=body("a", 0)).body == (
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'
    )
    assert harness.ask(41, body=body("b", 0)).body == b'{"lockOKMQSet":[]}'
    answer = harness.ask(42, body=body("a", 0))
    assert (answer.code, answer.body, answer.remark) == (0, b"", None)
    assert json.loads(harness.ask(41, body=body("b", 0, 1)).body)["lockOKMQSet"][1]["queueId"] == 1


def test_no_queues_give_an_empty_response() -> None:
    assert (
        HandlerHarness().ask(41, body=b'{"clientId":"a","consumerGroup":"G"}').body == b'{"lockOKMQSet":[]}'
    )


@pytest.mark.parametrize("code", [41, 42])
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (b"", "JSON"),
        (b"[]", "body"),
        (body("a", consumerGroup=None), "consumerGroup"),
        (body("a", clientId=3), "clientId"),
        (body("a", mqSet={}), "mqSet"),
        (body("a", mqSet=[{"topic": "T"}]), "mqSet"),
    ],
)
def test_wrong_bodies_are_refused_by_the_field(code: int, wrong: bytes, field: str) -> None:
    answer = HandlerHarness().ask(code, body=wrong)
    assert answer.code == 1
    assert field in str(answer.remark)


def test_queues_of_one_request_are_bounded() -> None:
    harness = HandlerHarness()
    assert harness.ask(41, body=body("a", *range(QUEUES_MAX))).code == 0
    answer = harness.ask(41, body=body("a", *range(QUEUES_MAX + 1)))
    assert (answer.code, answer.remark) == (1, "lock request: mqSet of 10001 queues, at most 10000")
