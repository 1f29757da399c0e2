"""`async for message in consumer`: when a message is acknowledged, and what becomes of the last one of a loop."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import Operations, RequestMode
from firearrow.client.base.errors import ConfigError, NotRunning
from firearrow.client.base.options import MessageModel
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.consumers import Topics, consumer, numbers
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually_async


def iterated(name_server: str, topic: str, group: str | None = None, **options: object) -> PushConsumer:
    made = consumer(name_server, group, **options)
    made.subscribe(topic)
    return made


async def taken(member: PushConsumer, count: int, within_s: float = 20) -> list[bytes]:
    """The bodies of the next messages; the loop ends by `stop`, so that all are acknowledged."""
    bodies = []
    async with asyncio.timeout(within_s):
        async for message in member:
            bodies.append(message.body)
            if len(bodies) == count:
                member.stop()
    return bodies


async def test_what_a_loop_has_handled_does_not_come_again(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, group = topics(queues=2), unique("group")
    feeder.feed(topic, numbers(40))
    async with iterated(name_server, topic, group) as first:
        begun = await taken(first, 15)
    async with iterated(name_server, topic, group) as second:
        rest = await taken(second, 25)
    assert sorted(begun + rest) == numbers(40)
    async with iterated(name_server, topic, group) as third:
        feeder.feed(topic, [b"last"])
        assert await taken(third, 1) == [b"last"]


async def test_no_message_is_handled_before_a_loop_asks_for_it(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Back pressure: the limits of the queue hold, and what waits for a loop does not expire."""
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, numbers(200))
    async with iterated(
        name_server, topic, group, queue_messages_max=10, pull_batch=5, consume_timeout_s=0.3, threads=20
    ) as member:
        bodies = []
        async for message in member:
            bodies.append(message.body)
            if len(bodies) <= 3:
                await asyncio.sleep(0.12)  # three take longer than the time-out of one
            assert member._runtime is not None
            [owned] = [one for queue, one in member._runtime.table.items() if queue.topic == topic]
            assert owned.message_count <= 16
            if len(bodies) == 200:
                member.stop()
        assert bodies == numbers(200)


@pytest.mark.parametrize("how", ["break", "exception", "cancellation", "close"])
async def test_the_last_message_of_a_loop_that_was_left_is_redelivered(
    name_server: str, topics: Topics, feeder: RawProducer, how: str
) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"0", b"1", b"2"])
    seen: list[bytes] = []

    async def loop(member: PushConsumer) -> None:
        async with member:
            async for message in member:
                seen.append(message.body)
                if message.body == b"1":
                    if how == "break":
                        break
                    if how == "exception":
                        raise ValueError(how)
                    if how == "close":
                        await member.close()
                    else:
                        await asyncio.sleep(60)

    running = asyncio.create_task(loop(iterated(name_server, topic, group)))
    await eventually_async(lambda: seen == [b"0", b"1"])
    if how == "cancellation":
        running.cancel()
    async with asyncio.timeout(5):  # not the time to drain
        [result] = await asyncio.gather(running, return_exceptions=True)
    expected = {"exception": ValueError, "cancellation": asyncio.CancelledError}
    assert type(result) is expected.get(how, type(None))
    async with iterated(name_server, topic, group) as second:
        again = await taken(second, 2)
    assert sorted(again) == [b"1", b"2"]


async def test_a_message_whose_body_failed_comes_again_while_the_loop_goes_on(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """The exception was handled outside the loop: a new loop does not acknowledge the message."""
    topic = topics(queues=1)
    feeder.feed(topic, [b"good", b"bad", b"better"])
    seen = []
    async with iterated(name_server, topic) as member, asyncio.timeout(30):
        while len(seen) < 4:
            try:
                async for message in member:
                    seen.append((message.body, message.topic, message.reconsume_times))
                    if seen[-1][::2] == (b"bad", 0):
                        raise ValueError
                    if len(seen) == 4:
                        member.stop()
            except ValueError:
                continue
    assert seen == [(b"good", topic, 0), (b"bad", topic, 0), (b"better", topic, 0), (b"bad", topic, 1)]


async def test_an_orderly_loop_repeats_the_message_that_failed_before_the_next(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, numbers(5))
    seen: list[bytes] = []
    async with iterated(name_server, topic, orderly=True, suspend_s=0.01) as member, asyncio.timeout(30):
        while len(seen) < 6:
            async for message in member:
                seen.append(message.body)
                if len(seen) == 2:
                    break
                if len(seen) == 6:
                    member.stop()
    assert seen == [b"000", b"001", b"001", b"002", b"003", b"004"]


async def test_several_tasks_share_the_messages(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=4)
    feeder.feed(topic, numbers(40))
    bodies: list[bytes] = []
    at_once = most = 0
    async with iterated(name_server, topic) as member:

        async def work() -> None:
            nonlocal at_once, most
            async for message in member:
                at_once += 1
                most = max(most, at_once)
                await asyncio.sleep(0.01)
                at_once -= 1
                bodies.append(message.body)
                if len(bodies) == 40:
                    member.stop()

        async with asyncio.timeout(20):
            await asyncio.gather(*(work() for _ in range(3)))
    assert sorted(bodies) == numbers(40)
    assert most == 3


async def test_a_cancelled_wait_loses_no_message(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    async with iterated(name_server, topic) as member:
        waits = [asyncio.create_task(taken(member, 1)) for _ in range(3)]
        await eventually_async(lambda: member.queues)
        for wait in waits:
            wait.cancel()
        feeder.feed(topic, numbers(2))
        assert await taken(member, 2) == numbers(2)


async def test_close_ends_a_loop_that_waits(name_server: str, topics: Topics) -> None:
    member = await iterated(name_server, topics()).start()
    waiting = asyncio.create_task(taken(member, 1))
    await eventually_async(lambda: member.queues)
    async with asyncio.timeout(5):
        await member.close()
        assert await waiting == []
    with pytest.raises(NotRunning, match="closed"):
        aiter(member)


async def test_a_body_that_works_while_the_consumer_closes_is_acknowledged(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"0", b"1"])
    begun, goes_on, seen = asyncio.Event(), asyncio.Event(), []
    member = await iterated(name_server, topic, group).start()

    async def work() -> None:
        async for message in member:
            begun.set()
            await goes_on.wait()
            seen.append(message.body)

    working = asyncio.create_task(work())
    async with asyncio.timeout(20):
        await begun.wait()
        closing = asyncio.create_task(member.close())
        await asyncio.sleep(0)
        goes_on.set()
        await closing
        await working
    assert seen == [b"0"]
    async with iterated(name_server, topic, group) as second:
        assert await taken(second, 1) == [b"1"]


async def test_every_member_of_a_broadcasting_group_iterates_over_all(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: object
) -> None:
    topic, group = topics(queues=2), unique("group")
    feeder.feed(topic, numbers(6))
    options = {"model": MessageModel.BROADCASTING, "local_offsets": tmp_path}
    async with (
        iterated(name_server, topic, group, **options) as one,
        iterated(name_server, topic, group, **options) as other,
    ):
        both = await asyncio.gather(taken(one, 6), taken(other, 6))
    assert [sorted(bodies) for bodies in both] == [numbers(6)] * 2


async def test_handlers_and_loops_are_not_mixed(name_server: str, topics: Topics) -> None:
    topic, other = topics(), topics()
    mixed = iterated(name_server, topic)
    mixed.subscribe(other, lambda messages: None)
    with pytest.raises(ConfigError, match="not both"):
        await mixed.start()
    handled = consumer(name_server)
    with pytest.raises(NotRunning, match="not started"):
        aiter(handled)

    @handled.subscribe(topic)
    def handle(messages: object) -> None: ...

    async with handled:
        with pytest.raises(ConfigError, match="not both"):
            aiter(handled)
        decorate: Callable[[object], object] = handled.subscribe(other)
        decorate(handle)  # as before: nothing is subscribed without a handler
    loops = iterated(name_server, topic)
    with pytest.raises(ConfigError, match="has no handler"):
        await loops.run()
    async with loops:
        with pytest.raises(ConfigError, match="not both"):
            loops.subscribe(other, handle)
        loops.subscribe(other)


async def test_popped_messages_are_iterated_and_acknowledged(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Of a group whose queues brokers assign, in the mode POP."""
    topic = topics(queues=1)
    member = iterated(name_server, topic, client_rebalance=False)
    async with Admin(name_server) as admin:
        await admin.create_group(member.group)
        await Operations(admin).set_request_mode(topic, member.group, RequestMode.POP)
    feeder.feed(topic, numbers(5))
    receipts, bodies = set(), []
    async with member, asyncio.timeout(60):
        async for message in member:
            receipts.add(message.get_property("POP_CK"))
            bodies.append(message.body)
            if len(bodies) == 5:
                member.stop()
    assert sorted(bodies) == numbers(5)
    assert None not in receipts
