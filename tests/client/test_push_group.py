"""Members of one group that come and go while messages flow: nothing is lost, and order is kept where it is promised.

A message may be handled twice when its queue changes hands; in order, never before an earlier one was.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually_async

FIRST = ConsumeFromWhere.FIRST_OFFSET
Topics = Callable[..., str]
Handler = Callable[[list[ReceivedMessage]], Awaitable[None]]


class Group:
    """Members of one group with one handler, each with its own client id."""

    def __init__(self, name_server: str, topic: str, handler: Handler, **options: object) -> None:
        self.name = unique("group")
        self._name_server = name_server
        self._topic = topic
        self._handler = handler
        self._options = PushConsumerOptions(**{"from_where": FIRST} | options)  # type: ignore[arg-type]

    def member(self, **more: object) -> PushConsumer:
        client = ClientOptions(name_server=self._name_server, rebalance_s=1)
        made = PushConsumer(self.name, client=client, options=self._options, **more)  # type: ignore[arg-type]
        made.subscribe(self._topic, self._handler)
        return made

    def owned(self, member: PushConsumer) -> set[int]:
        return {queue.queue_id for queue in member.queues if queue.topic == self._topic}


class Flow:
    """Messages for all queues of a topic, each with its number in its queue, until stopped."""

    def __init__(self, feeder: RawProducer, topic: str, queues: int) -> None:
        self._feeder = feeder
        self._topic = topic
        self._queues = range(queues)
        self._goes_on = True
        self.rounds = 0

    async def run(self) -> None:
        while self._goes_on:
            for queue_id in self._queues:
                await asyncio.to_thread(
                    self._feeder.feed, self._topic, [b"%d" % self.rounds], queue_id=queue_id
                )
            self.rounds += 1

    def stop(self) -> None:
        self._goes_on = False


@pytest.mark.parametrize("orderly", [False, True])
async def test_members_come_and_go_under_load_and_nothing_is_lost(
    name_server: str, topics: Topics, feeder: RawProducer, orderly: bool
) -> None:
    topic, handled, times = topics(queues=4), defaultdict[int, list[int]](list), [0, 0]

    def handler(member: int) -> Handler:
        async def handle(messages: list[ReceivedMessage]) -> None:
            await asyncio.sleep(0.001)
            times[member] += 1
            for message in messages:
                handled[message.queue_id].append(int(message.body))

        return handle

    group = Group(name_server, topic, handler(0), orderly=orderly)
    flow = Flow(feeder, topic, 4)
    flowing = asyncio.create_task(flow.run())
    async with group.member() as stays:
        await eventually_async(lambda: len(group.owned(stays)) == 4)
        leaves = group.member()
        leaves.subscribe(topic, handler(1))
        async with leaves:
            await eventually_async(lambda: len(group.owned(stays)) == len(group.owned(leaves)) == 2, 30)
            assert not group.owned(stays) & group.owned(leaves)
            await eventually_async(lambda: times[1] > 20, 30)
        await eventually_async(lambda: len(group.owned(stays)) == 4, 30)
        flow.stop()
        await flowing
        await eventually_async(lambda: all(set(handled[n]) == set(range(flow.rounds)) for n in range(4)), 30)
    if orderly:
        for numbers in handled.values():
            assert_in_order(numbers)


def assert_in_order(numbers: Sequence[int]) -> None:
    """Each number was seen before the next one was first seen."""
    newest = -1
    for number in numbers:
        assert number <= newest + 1, f"{number} before {newest + 1}"
        newest = max(newest, number)


async def test_a_custom_strategy_assigns_the_queues(name_server: str, topics: Topics) -> None:
    topic = topics(queues=4)

    def lowest_to_the_first(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues[:1] if client_id == client_ids[0] else queues[1:]

    async def handle(messages: list[ReceivedMessage]) -> None: ...

    group = Group(name_server, topic, handle, allocate=lowest_to_the_first)
    async with group.member() as one, group.member() as other:
        await eventually_async(lambda: sorted(map(len, (group.owned(one), group.owned(other)))) == [1, 3], 30)
        assert group.owned(one) | group.owned(other) == {0, 1, 2, 3}


async def test_the_broker_knows_a_new_subscription_before_the_first_pull(
    name_server: str, topics: Topics, feeder: RawProducer, caplog: pytest.LogCaptureFixture
) -> None:
    topic, seen = topics(queues=4), []

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.extend(messages)

    group = Group(name_server, topic, handle)
    with caplog.at_level(logging.WARNING, "firearrow.client"):
        async with group.member(), group.member():
            feeder.spread(topic, 20)
            await eventually_async(lambda: len(seen) >= 20)
    assert "SUBSCRIPTION_NOT" not in caplog.text


async def test_thresholds_of_a_topic_are_split_over_all_queues_that_are_ours(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, go_on = topics(queues=4), asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        await go_on.wait()

    group = Group(name_server, topic, handle, topic_messages_max=25, pull_batch=1, threads=1)
    feeder.spread(topic, 200)
    async with group.member() as one:
        assert one._runtime is not None
        held = one._runtime.table
        await eventually_async(lambda: sum(held.message_count for held in held.values()) == 4 * 6)
        await eventually_async(lambda: one._runtime is not None and one._runtime.pulls.times_full > 8)
        assert {queue.topic: process_queue.message_count for queue, process_queue in held.items()} == {
            topic: 6,
            f"%RETRY%{group.name}": 0,
        }
        go_on.set()


async def test_two_groups_share_an_instance(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, client, seen = (
        topics(),
        ClientOptions(name_server=name_server),
        defaultdict[str, list[bytes]](list),
    )

    def member(name: str) -> PushConsumer:
        made = PushConsumer(
            unique(name), client=client, options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        )

        @made.subscribe(topic)
        async def handle(messages: list[ReceivedMessage]) -> None:
            seen[name] += [message.body for message in messages]

        return made

    async with member("one") as one:
        async with member("two") as two:
            assert one.client_id == two.client_id
            feeder.spread(topic, 8)
            await eventually_async(lambda: len(seen["one"]) == len(seen["two"]) == 8)
        feeder.feed(topic, [b"after two has left"])
        await eventually_async(lambda: len(seen["one"]) == 9)
    assert len(seen["two"]) == 8


async def test_a_broadcasting_consumer_has_a_name_that_stays(name_server: str, topics: Topics) -> None:
    async def handle(messages: list[ReceivedMessage]) -> None: ...

    group = Group(name_server, topics(), handle, model=MessageModel.BROADCASTING)
    async with group.member() as one:
        assert one.client_id is not None
        assert one.client_id.endswith("@DEFAULT")
