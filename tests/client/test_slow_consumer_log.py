"""The log of consumers that are slower than their messages come: a line for the state, not one for each pause."""

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PullConsumerOptions, PushConsumerOptions
from firearrow.client.blocking import Producer, PullConsumer, PushConsumer
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

MESSAGES = 400


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("slow") / "store") as broker, ExitStack() as running:
        assert broker.name_server is not None
        address = "{}:{}".format(*broker.name_server)
        producer = running.enter_context(Producer("sender", name_server=address))
        for number in range(MESSAGES):
            producer.send(Message("Slow", b"%d" % number))
        yield address


def pauses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "pauses" in text]


def test_a_push_consumer(name_server: str, caplog: pytest.LogCaptureFixture) -> None:
    seen, slow = list[object](), threading.Event()

    def handle(messages: list[object]) -> None:
        seen.extend(messages)
        slow.wait(0.005)

    options = PushConsumerOptions(
        from_where=ConsumeFromWhere.FIRST_OFFSET, queue_messages_max=2, pull_batch=4, threads=1
    )
    consumer = PushConsumer("pushed", name_server=name_server, options=options)
    consumer.subscribe("Slow", handle)
    with caplog.at_level(logging.INFO, "firearrow.client"), consumer:
        eventually(lambda: len(seen) >= MESSAGES, 60)
    assert len(pauses(caplog)) == 1, pauses(caplog)


def test_a_pull_consumer(name_server: str, caplog: pytest.LogCaptureFixture) -> None:
    options = PullConsumerOptions(
        from_where=ConsumeFromWhere.FIRST_OFFSET, queue_messages_max=2, pull_batch=4
    )
    count = 0
    with (
        caplog.at_level(logging.INFO, "firearrow.client"),
        PullConsumer("pulled", name_server=name_server, options=options) as consumer,
    ):
        consumer.subscribe("Slow")
        while count < MESSAGES:
            count += len(consumer.poll(10))
    assert len(pauses(caplog)) == 1, pauses(caplog)
