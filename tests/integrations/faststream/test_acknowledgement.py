"""What becomes of a message by its handler's end and the subscriber's policy: done, redelivered, or a dead letter."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from faststream.message import AckStatus

from firearrow._native.protocol.name_rules import dlq_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import ConsumeFromWhere, PullConsumer, PullConsumerOptions
from firearrow.client.integrations.faststream import RocketMQBroker, RocketMQMessage
from tests.client.conftest import unique
from tests.integrations.faststream.conftest import started
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
QUIET_S = 2.5
"""After it a message that was to come again after 1 s would have come."""


class Case(NamedTuple):
    """`error`: what the handler raises for its first delivery."""

    policy: AckPolicy | None
    error: type[Exception] | None
    deliveries: int
    is_dead: bool = False
    batch: bool = False


CASES = [
    Case(None, None, 1),
    Case(None, ValueError, 2),  # the default is that of RocketMQ
    Case(AckPolicy.NACK_ON_ERROR, ValueError, 2),
    Case(AckPolicy.REJECT_ON_ERROR, ValueError, 1, is_dead=True),
    Case(AckPolicy.ACK, ValueError, 1),
    Case(AckPolicy.ACK_FIRST, ValueError, 1),
    Case(AckPolicy.ACK, NackMessage, 2),
    Case(AckPolicy.NACK_ON_ERROR, RejectMessage, 1, is_dead=True),
    Case(AckPolicy.NACK_ON_ERROR, AckMessage, 1),
]


async def dead_letters(name_server: str, group: str, count: int = 1) -> list[ReceivedMessage]:
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with PullConsumer(unique("dead"), name_server=name_server, options=options) as consumer:
        consumer.subscribe(dlq_topic(group))
        found: list[ReceivedMessage] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                found += await consumer.poll(1)
        return found


async def test_every_policy(broker: RocketMQBroker, name_server: str, topics: Topics) -> None:
    """All cases at once, each with a topic and a group of its own."""
    cases = [case._replace(batch=batch) for case in CASES for batch in (False, True)]
    came: dict[Case, list[int]] = {case: [] for case in cases}
    groups = {case: unique("policy") for case in cases}
    names = {case: topics(1) for case in cases}

    def subscribe(case: Case) -> None:
        options = {} if case.policy is None else {"ack_policy": case.policy}

        @broker.subscriber(names[case], group=groups[case], retry_delay_s=1, batch=case.batch, **options)
        async def handle(message: RocketMQMessage) -> None:
            came[case].append(message.messages[0].reconsume_times)
            if case.error is not None and len(came[case]) == 1:
                raise case.error

    for case in cases:
        subscribe(case)
    async with started(broker):
        for case in cases:
            await broker.publish("body", names[case])
        await eventually_async(
            lambda: all(len(came[case]) >= case.deliveries for case in cases), what=lambda: came
        )
        dead = [case for case in cases if case.is_dead]
        for case in dead:
            [letter] = await dead_letters(name_server, groups[case])
            assert letter.body == b"body"
        await asyncio.sleep(QUIET_S)
    assert {case: list(range(case.deliveries)) for case in cases} == came


async def test_by_hand(broker: RocketMQBroker, topics: Topics) -> None:
    topic, came = topics(1), list[RocketMQMessage]()

    @broker.subscriber(topic, ack_policy=AckPolicy.MANUAL, invisible_s=1)
    async def handle(message: RocketMQMessage) -> None:
        """The first delivery is left open, the second refused, the third accepted."""
        came.append(message)
        if len(came) == 2:
            await message.nack(delay_s=0.5)
            await message.ack()  # it is settled: no effect
        if len(came) == 3:
            await message.ack()

    async with started(broker):
        await broker.publish("body", topic)
        await eventually_async(lambda: len(came) == 3 and came[2].committed)
        await asyncio.sleep(QUIET_S)
    assert [message.committed for message in came] == [None, AckStatus.NACKED, AckStatus.ACKED]


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_message_that_fails_too_often_is_a_dead_letter(
    broker: RocketMQBroker, name_server: str, topics: Topics, orderly: bool
) -> None:
    """In order, the next message of the queue comes after that."""
    topic, group, came, others = topics(1), unique("failing"), list[int](), list[bytes]()

    @broker.subscriber(topic, group=group, orderly=orderly, retry_delay_s=0.2, max_reconsume_times=2)
    async def handle(message: RocketMQMessage) -> None:
        if message.body == b"body":
            came.append(message.messages[0].reconsume_times)
            raise ValueError("it always fails")
        assert not orderly or len(came) == 3
        others.append(message.body)

    async with started(broker):
        await broker.publish("body", topic, headers={"country": "DE"})
        await broker.publish("next", topic)
        [letter] = await dead_letters(name_server, group)
        await eventually_async(lambda: others == [b"next"])
    assert (letter.body, letter.properties["country"]) == (b"body", "DE")
    assert came == [0, 1, 2]


async def test_a_handler_chooses_the_delay_of_a_redelivery(broker: RocketMQBroker, topics: Topics) -> None:
    topic, times = topics(1), list[float]()

    @broker.subscriber(topic)
    async def handle(body: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise NackMessage(delay_s=2)

    async with started(broker):
        await broker.publish("body", topic)
        await eventually_async(lambda: len(times) == 2)
    assert times[1] - times[0] >= 1.9
