"""Push consumers that pop, at a real broker: each message reaches one member, and failed ones are redelivered."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import DeadLetter
from firearrow.client.consume.listeners import Handler
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.pop import pop_service
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async


def ask_for_pop(peer: Peer, topic: str, group: str, mode: str = "POP") -> None:
    wanted = {"consumerGroup": group, "mode": mode, "popShareQueueNum": 0, "topic": topic}
    with ClientSocket(address(peer.address)) as connection:
        answer = connection.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(wanted).encode())
    assert answer.code == 0, answer.remark


def member(name_server: str, group: str, topic: str, handler: Handler, **more: object) -> PushConsumer:
    options = {"client_rebalance": False, "from_where": ConsumeFromWhere.FIRST_OFFSET} | more
    made = PushConsumer(group, name_server=name_server, options=PushConsumerOptions(**options))  # type: ignore[arg-type]
    made.subscribe(topic, handler)
    return made


async def test_every_message_reaches_one_of_the_members(
    name_server: str, topics: Callable[..., str], peer: Peer
) -> None:
    """All of them consume even a single queue."""
    topic, group = topics(queues=1), unique("group")
    ask_for_pop(peer, topic, group)
    seen: list[Counter[bytes]] = [Counter(), Counter()]

    def handler_of(number: int) -> Handler:
        async def handler(messages: list[ReceivedMessage]) -> None:
            seen[number].update(message.body for message in messages)

        return handler

    members = [member(name_server, group, topic, handler_of(number), pop_batch=4) for number in range(2)]
    for each in members:
        await each.start()
    for each in members:
        await eventually_async(lambda each=each: each._runtime.rebalancer.pop_table)
    bodies = [b"%d" % number for number in range(100)]
    feeder = RawProducer(peer)
    await asyncio.to_thread(feeder.feed, topic, bodies)
    await eventually_async(lambda: sum(map(Counter.total, seen)) >= 100)
    for each in members:
        await each.close()
    assert seen[0] + seen[1] == Counter(bodies)
    assert seen[0]
    assert seen[1]


async def test_what_fails_comes_again(
    name_server: str, topics: Callable[..., str], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_service, "DELAYS_S", (1, *pop_service.DELAYS_S[1:]))
    topic, group = topics(queues=1), unique("group")
    ask_for_pop(peer, topic, group)
    await asyncio.to_thread(RawProducer(peer).feed, topic, [b"fails once", b"is fine"])
    seen: list[tuple[bytes, int, str]] = []

    def handler(messages: list[ReceivedMessage]) -> bool:
        [message] = messages
        seen.append((message.body, message.reconsume_times, message.topic))
        return message.body == b"is fine" or message.reconsume_times > 0

    consumer = member(name_server, group, topic, handler)
    await consumer.start()
    await eventually_async(lambda: len(seen) == 3, 30)
    await consumer.close()
    assert sorted(seen) == [(b"fails once", 0, topic), (b"fails once", 1, topic), (b"is fine", 0, topic)]


async def test_a_dead_letter_goes_to_the_groups_dead_letter_topic(
    name_server: str, topics: Callable[..., str], peer: Peer
) -> None:
    topic, group = topics(queues=1), unique("group")
    ask_for_pop(peer, topic, group)
    await asyncio.to_thread(RawProducer(peer).feed, topic, [b"hopeless"])
    seen: list[bytes] = []

    def handler(messages: list[ReceivedMessage]) -> DeadLetter:
        seen.extend(message.body for message in messages)
        return DeadLetter()

    consumer = member(name_server, group, topic, handler)
    await consumer.start()
    await eventually_async(lambda: seen)
    async with Admin(name_server) as admin:
        [queue] = await eventually_async(lambda: queues_of(admin, f"%DLQ%{group}"))
        assert await admin.max_offset(queue) == 1
    await consumer.close()
    assert seen == [b"hopeless"]


async def queues_of(admin: Admin, topic: str) -> list[MessageQueue]:
    """A topic is known to the name server a moment after it was made."""
    with suppress(NoRoute):
        return await admin.queues(topic)
    return []


async def test_names_of_a_namespace_stay_outside(
    name_server: str, topics: Callable[..., str], peer: Peer
) -> None:
    plain, group = unique("topic"), unique("group")
    feeder = RawProducer(peer)
    await asyncio.to_thread(feeder.feed, f"space%{plain}", [b"1", b"2"], tag="yes")
    await asyncio.to_thread(feeder.feed, f"space%{plain}", [b"3"], tag="no")
    ask_for_pop(peer, f"space%{plain}", f"space%{group}")
    seen: list[tuple[str, bytes]] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.extend((message.topic, message.body) for message in messages)

    consumer = PushConsumer(
        group,
        client=ClientOptions(name_server=name_server, namespace="space"),
        options=PushConsumerOptions(client_rebalance=False, from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    consumer.subscribe(plain, handler, tags="yes")
    await consumer.start()
    await eventually_async(lambda: len(seen) == 2)
    assert consumer._runtime is not None
    [queue] = consumer._runtime.rebalancer.pop_table.values()
    await eventually_async(lambda: queue.unacknowledged == 0)
    await consumer.close()
    assert sorted(seen) == [(plain, b"1"), (plain, b"2")]


async def test_what_was_handled_before_the_end_does_not_come_again(
    name_server: str, topics: Callable[..., str], peer: Peer
) -> None:
    topic, group = topics(queues=2), unique("group")
    ask_for_pop(peer, topic, group)
    await asyncio.to_thread(RawProducer(peer).spread, topic, 50, 2)
    seen: Counter[bytes] = Counter()

    async def handler(messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0.001)
        seen.update(message.body for message in messages)

    first = member(name_server, group, topic, handler, pop_invisible_s=5, pop_batch=8, threads=2)
    await first.start()
    await eventually_async(lambda: seen)
    await first.close()
    second = member(name_server, group, topic, handler, pop_invisible_s=5)
    await second.start()
    await eventually_async(lambda: len(seen) == 50, 30)
    await second.close()
    assert set(seen.values()) == {1}


async def test_a_topic_may_turn_from_pop_to_pull(
    name_server: str, topics: Callable[..., str], peer: Peer
) -> None:
    topic, group = topics(queues=1), unique("group")
    ask_for_pop(peer, topic, group)
    seen: list[bytes] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.extend(message.body for message in messages)

    consumer = member(name_server, group, topic, handler)
    await consumer.start()
    feeder = RawProducer(peer)
    await asyncio.to_thread(feeder.feed, topic, [b"popped"])
    await eventually_async(lambda: seen == [b"popped"])
    ask_for_pop(peer, topic, group, "PULL")
    runtime = consumer._runtime
    assert runtime is not None
    runtime.instance.rebalance_soon()
    await eventually_async(
        lambda: not runtime.rebalancer.pop_table and any(q.topic == topic for q in runtime.rebalancer.table)
    )
    await asyncio.to_thread(feeder.feed, topic, [b"pulled"])
    await eventually_async(lambda: b"pulled" in seen)
    await consumer.close()
