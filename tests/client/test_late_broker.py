"""Clients that start before the broker of their topic: they work a few seconds after it has come."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError
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
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.two_brokers import SecondBroker
from tests.interop.peers import BROKER, FireArrow

FIRST = ConsumeFromWhere.FIRST_OFFSET
LATE_S = 7.3
"""Late enough that a client that doubles its waits from 1 s on waits for another 8 s."""
WITHIN_S = 5.0
"""2 s, and the rest for a loaded machine."""

Use = Callable[[ClientOptions, str], Coroutine[Any, Any, None]]
"""Starts a client, and returns when it has sent or got a message."""


async def push(client: ClientOptions, topic: str, *, orderly: bool = False) -> None:
    got = asyncio.Event()

    async def handler(_: object) -> None:
        got.set()

    options = PushConsumerOptions(from_where=FIRST, orderly=orderly)
    consumer = PushConsumer(unique("group"), client=client, options=options)
    consumer.subscribe(topic, handler)
    async with consumer:
        await got.wait()


async def push_in_order(client: ClientOptions, topic: str) -> None:
    await push(client, topic, orderly=True)


async def pull(client: ClientOptions, topic: str) -> None:
    consumer = PullConsumer(unique("group"), client=client, options=PullConsumerOptions(from_where=FIRST))
    consumer.subscribe(topic)
    async with consumer:
        while not await consumer.poll(1):
            pass


async def pop(client: ClientOptions, topic: str) -> None:
    consumer = PopConsumer(unique("group"), client=client, options=PopConsumerOptions(from_where=FIRST))
    consumer.subscribe(topic)
    async with consumer:
        while True:
            with suppress(ClientError):
                if await consumer.receive(1, wait_s=1):
                    return
            await asyncio.sleep(0.1)


async def send(client: ClientOptions, topic: str) -> None:
    async with Producer(unique("producer"), client=client) as producer:
        while True:
            with suppress(ClientError):
                await producer.send(Message(topic, b"x"))
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("rebalance_s", [20, pytest.param(1, marks=pytest.mark.long)])
async def test_they_work_a_few_seconds_after_it_has_come(tmp_path: Path, rebalance_s: float) -> None:
    """With 1 s, a rebalance finds the route first; without a heartbeat it finds no queues of its own."""
    uses: tuple[Use, ...] = (push, push_in_order, pull, pop, send)
    topic, late = unique("topic"), None
    with FireArrow(tmp_path / "first", {"autoCreateTopicEnable": "false", "brokerName": BROKER}) as first:

        def client() -> ClientOptions:
            return ClientOptions(
                name_server=first.name_server, instance_name=unique("late"), rebalance_s=rebalance_s
            )

        working = {use.__name__: asyncio.create_task(use(client(), topic)) for use in uses}
        await asyncio.sleep(LATE_S)
        assert not any(task.done() for task in working.values())
        try:
            late = await asyncio.to_thread(SecondBroker, first, tmp_path / "late")
            late.add_topic(topic, 1)
            await send(client(), topic)
            _, slow = await asyncio.wait(working.values(), timeout=WITHIN_S)
            assert [name for name, task in working.items() if task in slow] == []
            await asyncio.gather(*working.values())
        finally:
            for task in working.values():
                task.cancel()
            await asyncio.wait(working.values())
            if late is not None:
                late.kill()


async def test_they_work_a_few_seconds_after_their_group_was_created(tmp_path: Path) -> None:
    """A broker takes no heartbeat for a group that it neither has nor may create, and does not answer so."""
    topic, got = unique("topic"), {"allocated": asyncio.Event(), "assigned": asyncio.Event()}

    async def consume(client: ClientOptions, group: str) -> None:
        async def handler(_: object) -> None:
            got[group].set()

        options = PushConsumerOptions(from_where=FIRST, client_rebalance=group == "allocated")
        consumer = PushConsumer(group, client=client, options=options)
        consumer.subscribe(topic, handler)
        async with consumer:
            await asyncio.Event().wait()

    with FireArrow(tmp_path / "store", {"autoCreateSubscriptionGroup": "false"}) as broker:

        def client() -> ClientOptions:
            return ClientOptions(name_server=broker.name_server, instance_name=unique("late"))

        await send(client(), topic)
        working = [asyncio.create_task(consume(client(), group)) for group in got]
        await asyncio.sleep(WITHIN_S)  # the heartbeats of the start are over
        async with Admin(client=client()) as admin:
            for group in got:
                await admin.create_group(group)
        try:
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(*(event.wait() for event in got.values()))
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)
