"""Several name servers, of which some are dead, hang or shut down: who is asked, and how long a send waits."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ConnectFailed, NotRunning, RequestTimeout
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.scripted import Scripted

DEAD = "127.0.0.1:1"


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """An address that takes connections and requests, and answers nothing. Yields the address."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield "{}:{}".format(*server.sockets[0].getsockname())
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def instance_of(*name_servers: str, **options: Any) -> ClientInstance:  # noqa: ANN401
    """It asks the first one first."""
    instance = await ClientInstance.of(ClientOptions(name_server=";".join(name_servers), **options))
    servers = instance.name_servers
    while servers.addresses[0] != name_servers[0]:  # in random order
        servers.update(DEAD)
        servers.update(";".join(name_servers))
    return instance


async def test_all_concurrent_requests_find_the_name_server_that_lives() -> None:
    async with Scripted("a") as cluster:
        instance = await instance_of(DEAD, cluster.name_server)
        topics = [f"t{number}" for number in range(9)]
        await asyncio.gather(*(instance.routes.refresh(topic) for topic in topics))
        assert sorted(cluster.asked) == topics
        await instance.leave()


async def test_one_that_hangs_holds_up_one_request_and_for_a_moment() -> None:
    async with Scripted("a") as cluster, silent_server() as silent:
        instance = await instance_of(silent, cluster.name_server, api_timeout_s=5)
        began = time.monotonic()
        await instance.routes.refresh("t")
        assert time.monotonic() - began < 2
        held = instance.channels.held(silent)
        assert held is not None
        await instance.routes.refresh("t")
        assert held.pending == 1
        await instance.leave()


async def test_without_any_the_last_failure_is_raised() -> None:
    instance = await instance_of(DEAD, "127.0.0.1:2")
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:2"):
        await instance.routes.refresh("t")
    await instance.leave()


SENDS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send(Message("t", b"x"), timeout_s=0.5),
    "submit": lambda producer: producer.submit(Message("t", b"x"), timeout_s=0.5),
    "batch": lambda producer: producer.send_batch([Message("t", b"x")], timeout_s=0.5),
    "oneway": lambda producer: producer.send_oneway(Message("t", b"x")),
    "request": lambda producer: producer.request(Message("t", b"x"), timeout_s=0.5),
    "transaction": lambda producer: producer.send_in_transaction(
        Message("t", b"x"), lambda *_: TransactionState.COMMIT, timeout_s=0.5
    ),
}


@pytest.mark.parametrize("how", SENDS)
async def test_a_send_keeps_its_timeout_while_the_name_server_hangs(how: str) -> None:
    async with silent_server() as silent:
        client = ClientOptions(name_server=silent, api_timeout_s=1.5)
        options = ProducerOptions(send_timeout_s=0.5)
        producer = Producer("p", client=client, options=options, checker=lambda _: TransactionState.COMMIT)
        async with producer:
            began = time.monotonic()
            with pytest.raises(RequestTimeout, match=r"topic t: .* did not answer|no name server answered"):
                await SENDS[how](producer)
            assert 0.4 < time.monotonic() - began < 1.3


async def test_a_close_ends_a_connection_that_is_being_opened_with_a_client_s_error() -> None:
    """Not with CancelledError: no task was cancelled that the user knows of."""
    async with silent_server() as silent:
        instance = await ClientInstance.of(ClientOptions(name_server=silent, tls=True))
        asking = asyncio.create_task(instance.routes.refresh("t"))
        await asyncio.sleep(0.1)
        await instance.leave()
        with pytest.raises(NotRunning):
            await asking


async def test_a_broker_that_goes_away_for_long_is_called_twice() -> None:
    async with Scripted("a") as cluster:
        instance = await ClientInstance.of(ClientOptions(name_server=cluster.name_server))
        broker = cluster.brokers["a"]
        broker.script = [int(ResponseCode.GO_AWAY)] * 1000
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {"e": "0"})
        answer = await instance.call(broker.address, request, 1)
        assert answer.code == ResponseCode.GO_AWAY
        assert len(broker.sent) == 2
        await instance.leave()
