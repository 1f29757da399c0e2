"""A FastAPI application with producer and consumer: its life, its readiness, its errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient

from firearrow.client import (
    ClientError,
    ClientOptions,
    ConfigError,
    ConsumeFromWhere,
    LocalBroker,
    Message,
    NotRunning,
    Producer,
    ProducerOptions,
    PushConsumer,
    PushConsumerOptions,
)
from firearrow.client.base.service_state import ServiceState
from firearrow.client.integrations.fastapi import RocketMQ
from tests.integrations.conftest import unique
from tests.support.eventually import eventually_async

FIRST = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)


def service(name_server: str, topic: str, received: list[bytes]) -> tuple[FastAPI, RocketMQ]:
    def worker() -> PushConsumer:
        consumer = PushConsumer(group, name_server=name_server, options=FIRST)
        consumer.subscribe(topic, lambda messages: received.extend(message.body for message in messages))
        return consumer

    group = unique("worker")
    rocketmq = RocketMQ(producer=lambda: Producer(unique("web"), name_server=name_server), consumers=[worker])
    app = FastAPI(lifespan=rocketmq.lifespan)
    app.include_router(rocketmq.router)

    @app.post("/{article}")
    async def order(article: str, producer: Annotated[Producer, Depends(rocketmq.producer)]) -> str:
        return (await producer.send(Message(topic, article.encode()))).message_id

    return app, rocketmq


def test_an_application_that_is_started_twice(name_server: str, topic: str) -> None:
    """As tests do, each in a loop of its own: producer and consumer are new ones."""
    received = list[bytes]()
    app, rocketmq = service(name_server, topic, received)

    async def use(number: int) -> None:
        async with (
            rocketmq.lifespan(app),
            AsyncClient(transport=ASGITransport(app), base_url="http://service") as web,
        ):
            producer, consumers = rocketmq.producer(), rocketmq.consumers()
            assert (await web.get("/readyz")).json() == {"ready": True, "wrong": {}}
            assert (await web.post(f"/article-{number}")).status_code == 200
            await eventually_async(lambda: b"article-%d" % number in received)
        assert producer.state is ServiceState.SHUTDOWN_ALREADY
        assert [each.state for each in consumers] == [ServiceState.SHUTDOWN_ALREADY]
        assert rocketmq.readiness() == {"application": "it has not started, or it is closing"}
        with pytest.raises(NotRunning, match="give RocketMQ one"):
            rocketmq.producer()

    for number in range(2):
        asyncio.run(use(number))
    assert sorted(received) == [b"article-0", b"article-1"]


async def test_readiness(tmp_path: Path, topic: str) -> None:
    """A paused consumer and a broker that dies: not ready, with the reason; and ready again."""
    with LocalBroker(tmp_path / "store", settings={"autoCreateTopicEnable": "true"}) as broker:
        app, rocketmq = service(broker.name_server, topic, [])
        async with (
            rocketmq.lifespan(app),
            AsyncClient(transport=ASGITransport(app), base_url="http://service") as web,
        ):
            await web.post("/book")
            [consumer] = rocketmq.consumers()
            assert isinstance(consumer, PushConsumer)
            consumer.pause()
            answer = await web.get("/readyz")
            assert answer.status_code == 503
            assert answer.json() == {"ready": False, "wrong": {f"consumer {consumer.group}": "it is paused"}}
            consumer.resume()
            assert (await web.get("/readyz")).status_code == 200
            broker.kill()
            await eventually_async(lambda: len(rocketmq.readiness()) == 2, 60, rocketmq.readiness)
            assert all("not reached: 127.0.0.1:" in text for text in rocketmq.readiness().values())
            await asyncio.to_thread(broker.start)
            await eventually_async(lambda: not rocketmq.readiness(), 60, rocketmq.readiness)


async def test_an_own_lifespan_inside(name_server: str, topic: str) -> None:
    seen = list[ServiceState]()
    rocketmq = RocketMQ(producer=lambda: Producer(unique("web"), name_server=name_server))

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, int]]:
        seen.append(rocketmq.producer().state)
        yield {"answer": 42}
        seen.append(rocketmq.producer().state)

    async with rocketmq.around(own)(FastAPI()) as state:
        assert state == {"answer": 42}
        with pytest.raises(ConfigError, match="runs already"):
            async with rocketmq.lifespan(FastAPI()):
                pass
        assert rocketmq.producer().state is ServiceState.RUNNING
    assert seen == [ServiceState.RUNNING] * 2


async def test_a_start_that_fails_closes_what_has_started(name_server: str) -> None:
    made = list[Producer]()

    def producer() -> Producer:
        made.append(Producer(unique("web"), name_server=name_server))
        return made[-1]

    def broken() -> PushConsumer:
        return PushConsumer(unique("group"), name_server=name_server)  # without a handler

    rocketmq = RocketMQ(producer=producer, consumers=[broken])
    with pytest.raises(ConfigError, match="no topic is subscribed"):
        async with rocketmq.lifespan(FastAPI()):
            pass
    assert made[0].state is ServiceState.SHUTDOWN_ALREADY
    unreachable = ClientOptions(name_server="127.0.0.1:1")
    topics = ProducerOptions(topics=("x",))
    alone = RocketMQ(producer=lambda: Producer("web", client=unreachable, options=topics))
    with pytest.raises(ClientError):
        async with alone.lifespan(FastAPI()):
            pass
