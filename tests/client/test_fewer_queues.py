"""A topic gets fewer queues while producers know more: they ask for the route and send to a queue that exists."""

from collections.abc import Callable

import pytest

from firearrow.client import (
    Admin,
    BrokerError,
    Message,
    MessageQueue,
    Producer,
    ProducerOptions,
)
from tests.client.conftest import unique

Topics = Callable[..., str]


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_every_kind_of_send_finds_the_queues_that_are_left(
    name_server: str, topics: Topics, auto_batch: bool
) -> None:
    topic = topics(8)
    options = ProducerOptions(auto_batch=auto_batch)
    async with (
        Admin(name_server) as admin,
        Producer(unique("p"), name_server=name_server, options=options) as producer,
    ):

        async def send(number: int) -> int:
            return (await producer.send(Message(topic, b"%d" % number))).queue.queue_id

        async def shard(number: int) -> int:
            return (await producer.send(Message(topic, b"x", sharding_key=str(number)))).queue.queue_id

        async def submit(number: int) -> int:
            return (await producer.submit(Message(topic, b"x"))).queue.queue_id

        async def batch(number: int) -> int:
            return (await producer.send_batch([Message(topic, b"x"), Message(topic, b"y")])).queue.queue_id

        for way in (send, shard, submit, batch):
            await admin.create_topic(topic, queues=8)
            await producer.instance.routes.refresh(topic)
            used = {await way(number) for number in range(32)}
            assert used == set(range(8)) or auto_batch
            await admin.create_topic(topic, queues=2)
            assert {await way(number) for number in range(32)} <= {0, 1}
        [queue] = {MessageQueue(topic, queue.broker_name, 7) for queue in await producer.queues(topic)}
        with pytest.raises(BrokerError, match=r"queueId\[7\] is illegal"):  # chosen by the caller
            await producer.send(Message(topic, b"x"), queue=queue)
