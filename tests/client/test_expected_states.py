"""The log of the client in states that are expected: no warning, and one line for each change of a state."""

import asyncio
import logging

import pytest

from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    PopConsumerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.local_broker import LocalBroker
from firearrow.client.remoting import connection_states
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.support.eventually import eventually_async

FIRST = ConsumeFromWhere.FIRST_OFFSET


def client(name_server: str) -> ClientOptions:
    return ClientOptions(name_server=name_server, poll_name_server_s=0.3, heartbeat_s=0.3, rebalance_s=0.3)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


class Receiving:
    """One consumer of each kind, each with its own client id."""

    def __init__(self, name_server: str, topic: str) -> None:
        self.bodies: dict[str, set[bytes]] = {
            "push": set(),
            "orderly": set(),
            "assigned": set(),
            "pull": set(),
        }
        self.consumers: list[PushConsumer | PullConsumer | PopConsumer] = []
        for name, more in {
            "push": {},
            "orderly": {"orderly": True},
            "assigned": {"client_rebalance": False},
        }.items():
            options = PushConsumerOptions(from_where=FIRST, **more)
            push = PushConsumer(unique(name), options=options, client=client(name_server))
            push.subscribe(topic, self._handler(name))
            self.consumers.append(push)
        pull = PullConsumer(
            unique("pull"), options=PullConsumerOptions(from_where=FIRST), client=client(name_server)
        )
        pull.subscribe(topic)
        pop = PopConsumer(
            unique("pop"), options=PopConsumerOptions(from_where=FIRST), client=client(name_server)
        )
        pop.subscribe(topic)
        self.consumers += [pull, pop]
        self._polling: asyncio.Task[None] | None = None

    def _handler(self, name: str) -> object:
        async def handle(messages: list[Message]) -> None:
            self.bodies[name].update(message.body for message in messages)

        return handle

    async def _poll(self, pull: PullConsumer) -> None:
        async for message in pull:
            self.bodies["pull"].add(message.body)

    async def __aenter__(self) -> "Receiving":
        for one in self.consumers:
            await one.start()
        pull = self.consumers[3]
        assert isinstance(pull, PullConsumer)
        self._polling = asyncio.create_task(self._poll(pull))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._polling is not None
        self._polling.cancel()
        for one in self.consumers:
            await one.close()

    async def all_have(self, body: bytes) -> None:
        await eventually_async(
            lambda: all(body in bodies for bodies in self.bodies.values()), what=self.bodies
        )


async def test_a_topic_that_is_created_by_its_first_message(
    firearrow_fresh_broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its consumers wait for it, and its producer creates it: nothing to warn of, and not a line for each attempt."""
    caplog.set_level(logging.INFO, "firearrow.client")
    name_server, topic = firearrow_fresh_broker.name_server, unique("topic")
    async with Receiving(name_server, topic) as receiving:
        await asyncio.sleep(2)  # some attempts of everything that tries again
        async with Producer(unique("p"), client=client(name_server)) as producer:
            await producer.send(Message(topic, b"first"))
            await receiving.all_have(b"first")
    assert lines(caplog, logging.WARNING) == []
    without_route = [line for line in lines(caplog, logging.INFO) if "no route" in line]
    assert len(without_route) <= len(receiving.consumers)


async def test_a_broker_that_is_restarted(
    firearrow_fresh_broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each client writes that it is not connected, and that it is again; whatever else it tries meanwhile."""
    broker, topic = firearrow_fresh_broker, unique("topic")
    async with (
        Producer(unique("p"), client=client(broker.name_server)) as producer,
        Receiving(broker.name_server, topic) as receiving,
    ):
        await producer.send(Message(topic, b"0"))
        await receiving.all_have(b"0")
        caplog.set_level(logging.INFO, "firearrow.client")
        caplog.clear()
        for number in (b"1", b"2"):
            assert await asyncio.to_thread(broker.stop) == 0
            await asyncio.sleep(2)  # some attempts of everything that tries again
            await asyncio.to_thread(broker.start)
            await eventually_async(lambda: not producer.health.down)
            await producer.send(Message(topic, number), timeout_s=20)
            await receiving.all_have(number)
    assert lines(caplog, logging.WARNING) == []
    clients = 1 + len(receiving.consumers)
    downs = [line for line in lines(caplog, logging.INFO) if line.startswith("not connected to")]
    ups = [line for line in lines(caplog, logging.INFO) if line.startswith("connected to")]
    assert len(downs) <= 2 * 2 * clients, "a broker and a name server"
    assert len(ups) <= len(downs)
    others = len(lines(caplog, logging.INFO)) - len(downs) - len(ups)
    assert others <= 4 * clients, "its queues, twice"


async def test_a_server_that_stays_away_is_a_warning(
    firearrow_fresh_broker: LocalBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_states, "LONG_S", 0.3)
    broker, topic = firearrow_fresh_broker, unique("topic")
    async with Producer(unique("p"), client=client(broker.name_server)) as producer:
        await producer.send(Message(topic, b"0"))
        await eventually_async(lambda: producer.instance.routes.known(topic))
        addresses = {*producer.health.brokers, *producer.health.name_servers}
        await asyncio.to_thread(broker.kill)
        await eventually_async(lambda: len(lines(caplog, logging.WARNING)) == 2)
        await asyncio.sleep(1)
    warnings = lines(caplog, logging.WARNING)
    assert len(warnings) == 2
    assert all(any(address in line for line in warnings) for address in addresses)
