"""Members of one group at a real broker share its queues and inherit them."""

from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.base.options import ClientOptions, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.rebalance.allocate_strategies import strategy_of
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.remoting.client_instance import ClientInstance
from tests.client.conftest import unique
from tests.client.rounds import Member
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async


async def member(name_server: str, group: str, topics: Sequence[str], **more: object) -> Member:
    made = Member(await ClientInstance.of(ClientOptions(name_server=name_server)), group, topics, **more)  # type: ignore[arg-type]
    await made.join()
    return made


async def test_members_share_queues_and_inherit_them(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=5), unique("group")
    one = await member(name_server, group, [topic])
    await eventually_async(lambda: one.mine == [0, 1, 2, 3, 4])
    two = await member(name_server, group, [topic])
    await eventually_async(lambda: len(one.mine) + len(two.mine) == 5 and two.mine)
    first, second = sorted((one, two), key=lambda each: each.instance.client_id)
    assert (first.mine, second.mine) == ([0, 1, 2], [3, 4])
    await one.leave()
    await eventually_async(lambda: two.mine == [0, 1, 2, 3, 4])
    await two.leave()


async def test_in_order_a_queue_comes_with_its_offset(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=2), unique("group")
    one = await member(name_server, group, [topic], orderly=True)
    await eventually_async(lambda: one.mine == [0, 1])
    for queue in list(one.rebalancer.table):
        one.offsets.update(queue, 10 + queue.queue_id)
    two = await member(name_server, group, [topic], orderly=True)
    await eventually_async(lambda: two.begun)
    await one.leave()
    await eventually_async(lambda: len(two.begun) == 2)
    assert all(request.next_offset == 10 + request.queue.queue_id for request in two.begun)
    await two.leave()


async def test_in_order_a_queue_has_one_owner_at_any_time(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=2), unique("group")
    one = await member(name_server, group, [topic], orderly=True)
    await eventually_async(lambda: one.mine == [0, 1])
    queues = sorted(one.rebalancer.table)
    stranger = QueueLocks(await ClientInstance.of(ClientOptions(name_server=name_server)), group, {})
    await stranger._instance.routes.subscribe_queues(topic)
    assert await stranger.lock_queues(queues) == set()
    two = await member(name_server, group, [topic], orderly=True)
    await eventually_async(lambda: len(one.mine) == len(two.mine) == 1)
    await one.leave()
    await eventually_async(lambda: two.mine == [0, 1])
    assert await stranger.lock_queues(queues) == set()
    await two.leave()
    assert await stranger.lock_queues(queues) == set(queues)
    await stranger.unlock_queues(queues)
    await stranger._instance.leave()


async def test_a_broker_assigns_queues_as_members_would(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=4), unique("group")
    one = await member(name_server, group, [topic], broker_assigns=True)
    await eventually_async(lambda: one.mine == [0, 1, 2, 3])
    two = await member(name_server, group, [topic], broker_assigns=True)
    await eventually_async(lambda: len(one.mine) == len(two.mine) == 2)
    first, second = sorted((one, two), key=lambda each: each.instance.client_id)
    assert (first.mine, second.mine) == ([0, 1], [2, 3])
    await one.leave()
    await two.leave()


async def test_a_broker_may_have_queues_popped(
    name_server: str, peer: Peer, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=2), unique("group")
    mode = {"consumerGroup": group, "mode": "POP", "popShareQueueNum": 0, "topic": topic}
    with ClientSocket(address(peer.address)) as connection:
        answer = connection.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, fastjson.dumps(mode))
    assert answer.code == 0, answer.remark
    one = await member(name_server, group, [topic], broker_assigns=True)
    await eventually_async(lambda: one.popped)
    assert [(queue.topic, queue.queue_id) for queue in one.popped] == [(topic, -1)], (
        "any queue of that broker"
    )
    assert one.begun == []
    await one.leave()


@pytest.mark.parametrize("allocate", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
async def test_each_strategy_gives_each_queue_one_owner(
    name_server: str, topics: Callable[..., str], allocate: str
) -> None:
    topic, group, strategy = topics(queues=8), unique("group"), strategy_of(allocate)
    both = [await member(name_server, group, [topic], strategy=strategy) for _ in range(2)]
    ids = sorted((one.instance.client_id for one in both), key=java_order)
    queues = sorted(await both[0].instance.routes.subscribe_queues(topic))
    wanted = {
        client_id: [queue.queue_id for queue in strategy(group, client_id, queues, ids)] for client_id in ids
    }
    await eventually_async(lambda: {one.instance.client_id: one.mine for one in both} == wanted)
    assert sorted(chain.from_iterable(wanted.values())) == list(range(8))
    for one in both:
        await one.leave()


async def test_a_strategy_may_be_anybody_s(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=4)

    def odd(
        group: str, client_id: str, queues: Sequence[MessageQueue], ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        assert ids == [client_id]
        return [queue for queue in queues if queue.queue_id % 2]

    consumer = PushConsumer(
        unique("group"), name_server=name_server, options=PushConsumerOptions(allocate=odd)
    )
    consumer.subscribe(topic, lambda messages: None)
    async with consumer:
        mine = {MessageQueue(topic, "broker-a", number) for number in (1, 3)}
        await eventually_async(lambda: {queue for queue in consumer.queues if queue.topic == topic} == mine)
