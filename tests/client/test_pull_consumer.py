"""PullConsumer against a real broker: subscribe and assign, poll, members that share."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.errors import ConfigError, NoRoute, NotRunning
from firearrow.client.base.hooks import ConsumeContext
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel, PullConsumerOptions
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consumers.pull_consumer import PullConsumer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async
from tests.support.requests import topic_ext

Topics = Callable[..., str]
FIRST = ConsumeFromWhere.FIRST_OFFSET


def consumer(name_server: str, group: str | None = None, **options: object) -> PullConsumer:
    chosen = PullConsumerOptions(**{"from_where": FIRST} | options)  # type: ignore[arg-type]
    return PullConsumer(group or unique("group"), name_server=name_server, options=chosen)


def subscribed(name_server: str, topic: str, group: str | None = None, **options: object) -> PullConsumer:
    made = consumer(name_server, group, **options)
    made.subscribe(topic)
    return made


async def polled(pulling: PullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    for _ in range(1000):
        bodies += [message.body for message in await pulling.poll(10)]
        if len(bodies) >= count:
            return bodies
    raise AssertionError(f"{len(bodies)} of {count} came")


async def settled(pulling: PullConsumer, queues: int) -> None:
    """Wait until this many queues are ours, and the start of each is known."""
    await eventually_async(
        lambda: (
            len(pulling.assignment()) == queues
            and all(pulling.position(queue) is not None for queue in pulling.assignment())
        )
    )


async def wait_until_committed(pulling: PullConsumer, queue: MessageQueue, offset: int) -> None:
    async def committed() -> bool:
        pulling._running().offsets.remove(queue)  # or it would always be read from memory
        return await pulling.committed(queue) == offset

    await eventually_async(committed)


# ---- subscribe ----


async def test_everything_sent_is_polled_once(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics()
    bodies = feeder.spread(topic, 200)
    async with subscribed(name_server, topic) as pulling:
        assert sorted(await polled(pulling, 200)) == sorted(bodies)
        assert await pulling.poll(0.1) == []
        assert {queue.topic for queue in pulling.assignment()} == {topic}
        assert len(pulling.assignment()) == 4


async def test_a_poll_gives_one_queue_in_order_and_at_most_a_batch(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"%d" % number for number in range(25)])
    async with subscribed(name_server, topic) as pulling:
        sizes, bodies = [], []
        for most in (None, 3, None, None):
            messages = await pulling.poll(10, most)
            sizes.append(len(messages))
            bodies += [int(message.body) for message in messages]
        assert sizes == [10, 3, 7, 5]
        assert bodies == list(range(25))


async def test_tags_are_distinguished_from_others_with_the_same_hash(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    for body, tag in ((b"1", "Aa"), (b"2", "BB"), (b"3", "C"), (b"4", "Aa")):
        feeder.feed(topic, [body], tag=tag)
    pulling = consumer(name_server)
    pulling.subscribe(topic, "Aa")
    async with pulling:
        assert await polled(pulling, 2) == [b"1", b"4"]


async def test_sql(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics(queues=1)
    for price in (1, 5, 9):
        feeder.feed(topic, [b"%d" % price], price=str(price))
    pulling = consumer(name_server)
    pulling.subscribe(topic, sql="price > 4")
    async with pulling:
        assert await polled(pulling, 2) == [b"5", b"9"]


async def test_topics_come_and_go(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    one, two = topics(queues=1), topics(queues=1)
    calls: list[tuple[str, int, int]] = []
    async with subscribed(name_server, one) as pulling:
        await settled(pulling, 1)
        pulling.subscribe(two, listener=lambda topic, all_, mine: calls.append((topic, len(all_), len(mine))))
        await settled(pulling, 2)
        assert calls == [(two, 1, 1)]
        pulling.unsubscribe(one)
        assert {queue.topic for queue in pulling.assignment()} == {two}
        feeder.feed(one, [b"not wanted"])
        feeder.feed(two, [b"wanted"])
        assert await polled(pulling, 1) == [b"wanted"]
        with pytest.raises(ConfigError):
            pulling.assign([MessageQueue(one, "b", 0)])


async def test_members_share_and_take_over_where_the_other_was(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, group = topics(), unique("group")
    first = subscribed(name_server, topic, group)
    await first.start()
    await settled(first, 4)
    second = subscribed(name_server, topic, group)
    async with second:
        await settled(second, 2)
        await eventually_async(lambda: len(first.assignment()) == 2)
        assert not first.assignment() & second.assignment()
        feeder.spread(topic, 8)
        found = await asyncio.gather(polled(first, 4), polled(second, 4))
        assert sorted(found[0] + found[1]) == sorted(b"%d" % number for number in range(8))
        await first.close()
        await settled(second, 4)
        assert await second.poll(0.2) == []


async def test_nothing_is_lost_while_members_come_and_go(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """What was returned and not yet committed may be delivered again, as in any group."""
    topic, group = topics(queues=8), unique("group")
    seen: set[bytes] = set()
    client = ClientOptions(name_server=name_server, rebalance_s=0.5)

    async def work(stop: asyncio.Event) -> None:
        pulling = PullConsumer(
            group, options=PullConsumerOptions(from_where=FIRST), client=replace_name(client)
        )
        pulling.subscribe(topic)
        async with pulling:
            while not stop.is_set():
                seen.update(message.body for message in await pulling.poll(0.05))

    feeding = asyncio.create_task(asyncio.to_thread(feeder.spread, topic, 2000, 8))
    forever = asyncio.Event()
    steady = asyncio.create_task(work(forever))
    for _ in range(3):
        stop = asyncio.Event()
        guest = asyncio.create_task(work(stop))
        await asyncio.sleep(0.8)
        stop.set()
        await guest
    sent = await feeding
    await eventually_async(lambda: len(seen) == len(sent), 60)
    forever.set()
    await steady


def replace_name(client: ClientOptions) -> ClientOptions:
    """The same with a separate instance, as another process would have."""
    return replace(client, instance_name=unique("member"))


async def test_a_queue_that_leaves_takes_what_was_done_with_it(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Unlike Java's, which would commit only what the last automatic commit knew."""
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"1", b"2"])
    async with subscribed(name_server, topic, group, auto_commit_s=3600) as pulling:
        assert await polled(pulling, 2) == [b"1", b"2"]
        assert await pulling.poll(0) == []
        [queue] = pulling.assignment()
        pulling.unsubscribe(topic)
        async with consumer(name_server, group) as other:
            await wait_until_committed(other, queue, 2)


# ---- assign ----


async def test_assigned_queues_and_no_others(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic = topics()
    for queue_id in range(4):
        feeder.feed(topic, [b"%d" % queue_id], queue_id=queue_id, tag="even" if queue_id % 2 == 0 else "odd")
    pulling = consumer(name_server)
    async with pulling:
        queues = await pulling.fetch_queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        pulling.assign(queues[:2])
        assert sorted(await polled(pulling, 2)) == [b"0", b"1"]
        await pulling.commit()
        pulling.assign(queues[1:], tags="even")
        assert pulling.assignment() == set(queues[1:])
        assert await polled(pulling, 1) == [b"2"]
        assert await pulling.poll(0.2) == []
        assert await pulling.committed(queues[0]) == 1
        with pytest.raises(ConfigError):
            pulling.subscribe(topic)
        with pytest.raises(ConfigError):
            pulling.assign([])


async def test_assigned_before_the_start(
    name_server: str, topics: Topics, feeder: RawProducer, peer: Peer
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"body"])
    pulling = consumer(name_server)
    pulling.assign([MessageQueue(topic, "broker-a", 0)])
    assert len(pulling.assignment()) == 1
    async with pulling:
        assert await polled(pulling, 1) == [b"body"]


# ---- the rest ----


async def test_a_broadcasting_member_keeps_its_own_offsets(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    topic, group = topics(), unique("group")
    bodies = feeder.spread(topic, 20)
    client = ClientOptions(name_server=name_server, instance_name=unique("stable"))

    def member() -> PullConsumer:
        options = PullConsumerOptions(
            model=MessageModel.BROADCASTING, from_where=FIRST, local_offsets=tmp_path
        )
        made = PullConsumer(group, options=options, client=client)
        made.subscribe(topic)
        return made

    async with member() as first:
        assert sorted(await polled(first, 20)) == sorted(bodies)
    feeder.feed(topic, [b"later"])
    async with member() as again:
        assert await polled(again, 1) == [b"later"]
        assert len(again.assignment()) == 4


async def test_new_queues_of_a_topic_are_reported(
    name_server: str, topics: Topics, feeder: RawProducer, peer: Peer
) -> None:
    topic = topics(queues=1)
    calls: list[tuple[str, int]] = []
    async with consumer(name_server, check_queues_s=0.05) as pulling:
        await pulling.on_queues_changed(topic, lambda name, queues: calls.append((name, len(queues))))
        with ClientSocket(address(peer.address)) as connection:
            ext = topic_ext(topic, queues=3)
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        await eventually_async(lambda: calls)
        assert calls == [(topic, 3)]
        with pytest.raises(NoRoute):
            await pulling.on_queues_changed(unique("nothing"), lambda name, queues: None)


class Hook:
    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []

    def before(self, context: ConsumeContext) -> None:
        self.seen.append((len(context.messages), context.success))

    def after(self, context: ConsumeContext) -> None:
        self.seen.append((len(context.messages), context.success))


class OnlyEven:
    def filter(
        self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        return [message for message in messages if int(message.body) % 2 == 0]


async def test_hooks(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, hook = topics(queues=1), Hook()
    feeder.feed(topic, [b"0", b"1", b"2"])
    pulling = PullConsumer(
        unique("group"),
        name_server=name_server,
        options=PullConsumerOptions(from_where=FIRST),
        consume_hooks=[hook],
        filter_hooks=[OnlyEven()],
    )
    pulling.subscribe(topic)
    async with pulling:
        assert await polled(pulling, 2) == [b"0", b"2"]
    assert hook.seen == [(2, False), (2, True)]


async def test_names_of_a_namespace_stay_outside(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    plain = unique("topic")
    feeder.feed(f"space%{plain}", [b"body"])
    client = ClientOptions(name_server=name_server, namespace="space")
    pulling = PullConsumer(unique("group"), options=PullConsumerOptions(from_where=FIRST), client=client)
    pulling.subscribe(plain)
    async with pulling:
        [message] = await pulling.poll(10)
        assert (message.topic, message.body) == (plain, b"body")
        assert {queue.topic for queue in pulling.assignment()} == {plain}
        [queue] = [queue for queue in pulling.assignment() if pulling.position(queue) == 1]
        await pulling.seek(queue, 0)
        assert (await pulling.poll(10))[0].body == b"body"
        await pulling.commit()
        assert await pulling.committed(queue) == 1


async def test_its_life(name_server: str, topics: Topics) -> None:
    topic = topics(queues=1)
    pulling = subscribed(name_server, topic)
    with pytest.raises(NotRunning):
        await pulling.poll()
    await pulling.start()
    assert pulling.state is ServiceState.RUNNING
    with pytest.raises(NotRunning):
        await pulling.start()
    with pytest.raises(ConfigError):
        await pulling.poll(-1)
    waiting = asyncio.create_task(pulling.poll(60))
    await asyncio.sleep(0)
    await pulling.close()
    assert await waiting == []
    await pulling.close()
    with pytest.raises(NotRunning):
        await pulling.poll()
    with pytest.raises(NotRunning):
        await pulling.start()


async def test_a_failed_start_can_be_tried_again(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Another consumer of the group is in the same instance until it is closed."""
    topic, group = topics(queues=1), unique("group")
    client = ClientOptions(name_server=name_server)
    made = [PullConsumer(group, client=client) for _ in range(2)]
    for each in made:
        each.subscribe(topic)
    await made[0].start()
    with pytest.raises(ConfigError):
        await made[1].start()
    assert made[1].state is ServiceState.START_FAILED
    await made[0].close()
    await made[1].start()
    await made[1].close()
