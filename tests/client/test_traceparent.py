"""A message's `traceparent` (W3C) is handed on to all that brokers make of it: retries, dead letters, delayed and
committed messages. tests/interop/test_cli_messages.py has resent and redriven ones."""

import asyncio
from collections.abc import Callable

from firearrow._native.protocol.name_rules import dlq_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions, PullConsumerOptions
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.consumers import consumer

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "shop=1,b=2"}
WAIT_S = 30
Topics = Callable[..., str]


def trace_of(message: ReceivedMessage) -> dict[str, str | None]:
    return {name: message.get_property(name) for name in TRACE}


async def send(name_server: str, message: Message) -> None:
    async with Producer(unique("producer"), name_server=name_server) as producer:
        await producer.send(message)


async def first_of(name_server: str, topic: str) -> ReceivedMessage:
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with PullConsumer(unique("group"), name_server=name_server, options=options) as pulling:
        pulling.subscribe(topic)
        async with asyncio.timeout(WAIT_S):
            while not (messages := await pulling.poll(1)):
                pass
        return messages[0]


async def test_retries_and_dead_letters_of_a_push_consumer_have_it(name_server: str, topics: Topics) -> None:
    topic, seen = topics(queues=1), list[tuple[int, dict[str, str | None]]]()
    await send(name_server, Message(topic, b"x", properties=dict(TRACE)))
    pushing = consumer(name_server, max_reconsume_times=2)

    @pushing.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        seen.extend((message.reconsume_times, trace_of(message)) for message in messages)
        return ConsumeResult.RETRY_LATER

    async with pushing:
        async with asyncio.timeout(WAIT_S):
            while len(seen) < 3:  # noqa: ASYNC110 - the handler is called by the consumer
                await asyncio.sleep(0.05)
        assert seen == [(times, TRACE) for times in range(3)]
        letter = await first_of(name_server, dlq_topic(pushing.group))
    assert trace_of(letter) == TRACE


async def test_what_pop_brings_back_has_it(name_server: str, topics: Topics) -> None:
    topic = topics(queues=1)
    await send(name_server, Message(topic, b"x", properties=dict(TRACE)))
    options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, invisible_s=1, wait_s=2)
    popping = PopConsumer(unique("group"), name_server=name_server, options=options)
    popping.subscribe(topic)
    seen: list[ReceivedMessage] = []
    async with popping, asyncio.timeout(WAIT_S):
        while len(seen) < 2:
            seen += await popping.receive()
        await popping.ack(seen[-1])
    assert [message.reconsume_times for message in seen] == [0, 1], "the second one was revived"
    assert [trace_of(message) for message in seen] == [TRACE] * 2


async def test_delayed_messages_have_it(name_server: str, topics: Topics) -> None:
    for delay in ({"delay_level": 1}, {"delay_s": 1.0}):
        topic = topics(queues=1)
        message = Message(topic, b"x", properties=dict(TRACE), **delay)  # type: ignore[arg-type]
        await send(name_server, message)
        found = await first_of(name_server, topic)
        assert trace_of(found) == TRACE
        assert found.store_timestamp - found.born_timestamp >= 900, "it was delayed"


async def test_committed_messages_have_it(name_server: str, topics: Topics) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")
    message = Message(topic, b"x", properties=dict(TRACE))
    async with (
        Producer(unique("tx"), name_server=name_server, checker=lambda _: None) as producer,
        producer.transaction(message),
    ):
        pass
    assert trace_of(await first_of(name_server, topic)) == TRACE
