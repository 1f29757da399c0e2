"""Messages that the client leaves out, by the check of tags or by a FilterHook: offsets pass them, at a real broker."""

from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ConsumeFromWhere,
    PopConsumerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.pushing import Seen
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
FIRST = ConsumeFromWhere.FIRST_OFFSET
WANTED, SAME_HASH = "0a", "1B"
"""Java's hash of both is 1585, so brokers let both pass."""


class OnlyWanted:
    """A FilterHook."""

    def filter(
        self, group: str, queue: MessageQueue, messages: list[ReceivedMessage], /
    ) -> list[ReceivedMessage]:
        return [message for message in messages if message.tags == WANTED]


async def send(name_server: str, topic: str, *tags: str) -> None:
    async with Producer(unique("producer"), name_server=name_server) as producer:
        for tag in tags:
            await producer.send(Message(topic, tag.encode(), tags=tag))


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("tags", [(SAME_HASH,) * 4, (WANTED, SAME_HASH, WANTED, SAME_HASH)])
async def test_a_push_consumers_offset_passes_them(
    name_server: str, topics: Topics, tags: tuple[str, ...], *, orderly: bool, hook: bool
) -> None:
    topic, group, seen = topics(queues=1), unique("group"), Seen()
    await send(name_server, topic, *tags)
    options = PushConsumerOptions(from_where=FIRST, orderly=orderly)
    hooks = [OnlyWanted()] if hook else []
    made = PushConsumer(group, name_server=name_server, options=options, filter_hooks=hooks)
    made.subscribe(topic, seen, tags=None if hook else WANTED)
    async with made, Admin(name_server=name_server) as admin:
        runtime = made._runtime
        assert runtime is not None
        [queue] = await admin.queues(topic)
        await eventually_async(lambda: runtime.offsets.cached_offset(queue) == len(tags))
        await made.close()
        assert await admin.offset(group, queue) == len(tags), "a restart does not read them again"
    assert seen.bodies == [tag.encode() for tag in tags if tag == WANTED]


async def test_a_pull_consumers_offset_passes_them(name_server: str, topics: Topics) -> None:
    topic, group = topics(queues=1), unique("group")
    await send(name_server, topic, WANTED, SAME_HASH, SAME_HASH)
    made = PullConsumer(group, name_server=name_server, options=PullConsumerOptions(from_where=FIRST))
    made.subscribe(topic, tags=WANTED)
    async with made:
        assert [message.tags for message in await made.poll(10)] == [WANTED]
        await made.poll(0.2)
    async with Admin(name_server=name_server) as admin:
        [queue] = await admin.queues(topic)
        assert await admin.offset(group, queue) == 3


async def test_a_pop_acknowledges_them(name_server: str, topics: Topics) -> None:
    topic, group = topics(queues=1), unique("group")
    await send(name_server, topic, SAME_HASH, WANTED, SAME_HASH)
    options = PopConsumerOptions(from_where=FIRST, invisible_s=1, orderly=True)
    made = PopConsumer(group, name_server=name_server, options=options)
    made.subscribe(topic, tags=WANTED)
    async with made:
        [message] = await made.receive(wait_s=5)
        await made.ack(message)
        assert await made.receive(wait_s=2) == [], "in order, an unacknowledged one would block the queue"
        await send(name_server, topic, WANTED)
        assert len(await made.receive(wait_s=5)) == 1
