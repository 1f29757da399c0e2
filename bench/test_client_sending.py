"""The cost of sending a message: creating it, encoding it, reading the response."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.message_properties import batch_body, can_batch, message_properties
from firearrow._native.wire.send_request import SendAnswer, SendFrames, post
from firearrow.client.base.message import Message
from firearrow.client.send.prepare import unique_ids
from tests.support.transport import RecordingTransport
from tests.unit.wire.calls_client import CallsClient

COUNT = 100
SMALL = bytes(128)


def test_making_a_message(benchmark: Any) -> None:  # noqa: ANN401 - untyped plugin
    assert benchmark(lambda: Message("t", SMALL)).body == SMALL


def test_making_an_id(benchmark: Any) -> None:  # noqa: ANN401 - untyped plugin
    assert len(benchmark(unique_ids().next)) in (32, 56)


def test_writing_properties(benchmark: Any) -> None:  # noqa: ANN401 - untyped plugin
    message = Message("t", SMALL, tags="TagA", keys=["order-1"])
    assert b"TagA" in benchmark(message_properties, message, unique_ids())


@pytest.mark.parametrize("binary", [False, True])
def test_writing_a_frame(benchmark: Any, binary: bool) -> None:  # noqa: ANN401 - untyped plugin
    frames = SendFrames("group", "topic", binary=binary)
    properties = message_properties(Message("t", SMALL), unique_ids())
    assert benchmark(lambda: frames.frame(1, 2, 1_700_000_000_000, properties, SMALL, broker_name="broker-a"))


def test_writing_a_batch_of_100(benchmark: Any) -> None:  # noqa: ANN401 - untyped plugin
    messages = [Message("t", SMALL) for _ in range(COUNT)]
    assert can_batch(messages)
    assert len(benchmark(batch_body, messages, unique_ids())) > COUNT * len(SMALL)


@pytest.fixture
def client() -> Iterator[CallsClient]:
    loop = asyncio.new_event_loop()
    client = CallsClient(loop, 1 << 20)
    client.connection_made(RecordingTransport())  # type: ignore[arg-type]
    yield client
    client.connection_lost(None)
    loop.close()


def test_100_calls_and_their_answers(benchmark: Any, client: CallsClient) -> None:  # noqa: ANN401 - untyped plugin
    ext = {
        "msgId": "7F" * 16,
        "queueId": "1",
        "queueOffset": "5",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    outcomes: list[SendAnswer | BaseException] = []

    def asked() -> tuple[tuple[bytes], dict[str, object]]:
        outcomes.clear()
        answers = []
        for _ in range(COUNT):
            opaque = client.next_opaque()
            post(client, opaque, b"frame", outcomes.append, 60)
            answers.append(RemotingCommand(0, ext, opaque=opaque, flag=1).encode())
        return (b"".join(answers),), {}

    benchmark.pedantic(client.feed, setup=asked, rounds=200)
    assert len(outcomes) == COUNT
