"""A broker comes back at another address: its consumers find it, and it knows them before their next heartbeat."""

import asyncio
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.pushing import Seen
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually, eventually_async
from tests.support.requests import topic_ext


async def test_a_broker_that_moves_is_consumed_at_once(tmp_path: Path) -> None:
    """The time between two heartbeats is 30 s here, as in all programs; only the route is asked for sooner."""
    with BrokerProcess(tmp_path / "naming") as naming:
        assert naming.name_server is not None
        name_server = "{}:{}".format(*naming.name_server)

        def broker() -> BrokerProcess:
            registered = ("--namesrv", name_server, "--namesrv-listen", "off")
            return BrokerProcess(tmp_path / "store", *registered, "--set", "brokerName=moving")

        first = broker()
        with first.connect() as connection:
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("t", 1)).code == 0
        with naming.connect_name_server() as connection:
            eventually(
                lambda: connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}).code == 0,
                what="the route",
            )
        client = ClientOptions(name_server=name_server, poll_name_server_s=0.2)
        seen, queue = Seen(), MessageQueue("t", "moving", 0)
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer("g", client=client, options=options)
        consumer.subscribe("t", seen)
        async with Producer("p", client=client) as producer, consumer:
            await producer.send(Message("t", b"before"), queue=queue)
            await eventually_async(lambda: seen.bodies == [b"before"])
            first.kill()
            second = await asyncio.to_thread(broker)
            assert second.address != first.address
            address = "{}:{}".format(*second.address)
            await eventually_async(lambda: consumer.instance.routes.master("moving") == address)
            await producer.send(Message("t", b"after"), queue=queue)
            await eventually_async(lambda: seen.bodies == [b"before", b"after"])
        assert second.stop() == 0
