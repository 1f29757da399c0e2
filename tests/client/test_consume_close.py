"""What a close leaves, end to end: nothing is lost, and what was finished is not delivered twice."""

import asyncio
import threading
from collections import Counter

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from tests.client.conftest import unique
from tests.client.consumers import Journal, Topics, consumer, numbers
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually_async


@pytest.mark.parametrize("plain", [False, True])
async def test_a_close_under_load_loses_nothing_and_repeats_nothing(
    plain: bool, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, begun, done = topics(), Counter[bytes](), Counter[bytes]()
    pause = threading.Event()

    def plain_handler(messages: list[ReceivedMessage]) -> None:
        begun.update(message.body for message in messages)
        pause.wait(0.01)
        done.update(message.body for message in messages)

    async def handler(messages: list[ReceivedMessage]) -> None:
        begun.update(message.body for message in messages)
        await asyncio.sleep(0.01)
        done.update(message.body for message in messages)

    sent = feeder.spread(topic, 400)
    group = unique("group")
    for stop_at in (50, 200, 400):
        consuming = consumer(name_server, group, threads=4)
        consuming.subscribe(topic, plain_handler if plain else handler)
        async with consuming:
            await eventually_async(lambda: sum(done.values()) >= stop_at, 30)  # noqa: B023
        assert begun == done
    assert done == Counter(sent)


async def test_a_handler_cut_off_by_a_close_leaves_its_message_to_the_next_member(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, begun, cancelled = topics(), list[bytes](), list[bytes]()

    async def stuck(messages: list[ReceivedMessage]) -> None:
        begun.append(messages[0].body)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(messages[0].body)
            raise

    feeder.feed(topic, numbers(3))
    consuming = consumer(name_server, threads=2, drain_s=0.2)
    consuming.subscribe(topic, stuck)
    async with consuming:
        await eventually_async(lambda: len(begun) == 2)
        closing = asyncio.get_running_loop().time()
    assert sorted(cancelled) == [b"000", b"001"]
    assert asyncio.get_running_loop().time() - closing < 5
    journal = Journal()
    successor = consumer(name_server, consuming.group)
    successor.subscribe(topic, journal)
    async with successor:
        await eventually_async(lambda: len(journal.seen) == 3, 20)
    assert sorted(journal.bodies) == numbers(3)


async def test_a_handler_may_close_its_consumer(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """It waits only for the others; its own message is delivered again, since its result can no longer be reported."""
    topic, done = topics(queues=1), list[bytes]()
    group = unique("group")

    async def handler(messages: list[ReceivedMessage]) -> None:
        if messages[0].body == b"002":
            await consuming.close()
        else:
            done.append(messages[0].body)

    feeder.feed(topic, numbers(3))
    consuming = consumer(name_server, group)
    consuming.subscribe(topic, handler)
    async with asyncio.timeout(8):
        await consuming.run()
    assert done == numbers(2)
    journal = Journal()
    successor = consumer(name_server, group)
    successor.subscribe(topic, journal)
    async with successor:
        await eventually_async(lambda: journal.seen, 20)
    assert journal.bodies == [b"002"]
