"""What producers and consumers share: sockets, routes, heartbeats, identity."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    NoNameServer,
    NoRoute,
    RequestTimeout,
)
from firearrow.client.base.options import ClientOptions
from firearrow.client.remoting import client_instance
from firearrow.client.remoting.client_instance import ClientInstance
from tests.client.conftest import unique


class Role:
    def __init__(self, group: str) -> None:
        self.group = group

    def topics(self) -> set[str]:
        return set()


async def test_equal_options_share_an_instance_and_the_last_to_leave_closes_it(name_server: str) -> None:
    options = ClientOptions(name_server=name_server)
    first, second = await ClientInstance.of(options), await ClientInstance.of(options)
    other = await ClientInstance.of(ClientOptions(name_server=name_server))
    assert first is second
    assert other.client_id != first.client_id
    await first.leave()
    await second.routes.refresh("TBW102")
    await second.leave()
    await other.leave()
    assert (await ClientInstance.of(options)) is not first


async def test_one_client_id_has_one_set_of_options(name_server: str) -> None:
    first = await ClientInstance.of(ClientOptions(name_server=name_server, instance_name="i"))
    again = await ClientInstance.of(ClientOptions(name_server=name_server, instance_name="i"))
    assert again is first
    with pytest.raises(ConfigError, match="instance_name"):
        await ClientInstance.of(ClientOptions(name_server="127.0.0.1:1", instance_name="i"))
    await first.leave()
    await again.leave()


async def test_a_route_names_queues_and_brokers(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=3)
    instance = await ClientInstance.of(ClientOptions(name_server=name_server))
    info = await instance.routes.publish_info(topic)
    assert [queue.queue_id for queue in info.queues] == [0, 1, 2]
    assert await instance.routes.subscribe_queues(topic) == list(info.queues)
    assert instance.routes.master(info.queues[0].broker_name) is not None
    assert not await instance.routes.refresh(topic), "nothing changed"
    with pytest.raises(NoRoute):
        await instance.routes.subscribe_queues(unique("nobody"))
    await instance.leave()


async def test_heartbeats_register_us_and_leaving_takes_us_back(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(), unique("group")
    instance = await ClientInstance.of(ClientOptions(name_server=name_server))
    await instance.routes.refresh(topic)
    role = Role(group)
    await instance.join_producer(role)
    with pytest.raises(ConfigError):
        await instance.join_producer(Role(group))
    assert await instance.heartbeat_all() == 1
    address = next(iter(instance.routes.brokers_of(topic)), None)
    assert address is not None
    assert instance.broker_version(address) > 400

    async def members() -> str:
        request = RemotingCommand.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group})
        return (await instance.call(address, request, 3)).body.decode()

    assert instance.client_id in await members()
    await instance.leave_producer(role)
    assert instance.client_id not in await members()
    await instance.leave()


async def test_many_requests_share_one_socket(name_server: str, topics: Callable[..., str]) -> None:
    instance = await ClientInstance.of(ClientOptions(name_server=name_server))
    names = [topics() for _ in range(5)]
    await asyncio.gather(*(instance.routes.refresh(name) for name in names * 10))
    assert len(instance.channels._all) == 1
    await instance.leave()


async def test_faults_of_addresses_are_reported() -> None:
    nowhere = await ClientInstance.of(ClientOptions(name_server="127.0.0.1:1"))
    with pytest.raises(ConnectFailed):
        await nowhere.routes.refresh("t")
    await nowhere.leave()
    with pytest.raises(ConfigError):
        await ClientInstance.of(ClientOptions(name_server="127.0.0.1"))
    without = await ClientInstance.of(ClientOptions(name_server=""))
    with pytest.raises(NoNameServer):
        await without.routes.refresh("t")
    await without.leave()


async def test_a_silent_peer_is_a_time_out_and_a_gone_one_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        instance = await ClientInstance.of(ClientOptions(name_server=address))
        with pytest.raises(RequestTimeout):
            await instance.call(address, RemotingCommand.request(1), 0.2)
        accepted, _ = silent.accept()
        call = asyncio.create_task(instance.call(address, RemotingCommand.request(1), 3))
        await asyncio.sleep(0)
        accepted.close()
        with pytest.raises(ConnectionLost):
            await call
        await instance.leave()


async def test_the_next_name_server_is_asked_when_one_is_gone(name_server: str) -> None:
    instance = await ClientInstance.of(ClientOptions(name_server=f"127.0.0.1:1;{name_server}"))
    for _ in range(3):
        await instance.routes.refresh("TBW102")
    await instance.leave()


class Joining(Role):
    """A consumer that has nothing to rebalance until brokers know it."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.rebalances = False
        self.rebalanced = asyncio.Event()

    def heartbeat_data(self) -> dict[str, object]:
        return {}

    async def rebalance(self) -> bool:
        self.rebalanced.set()
        return True

    async def persist_offsets(self) -> None:
        pass


async def test_a_notification_before_a_consumer_has_joined_does_not_delay_it(
    name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends one for the first heartbeat; a rebalance would be followed by the gap."""
    monkeypatch.setattr(client_instance, "REBALANCE_GAP_S", 3600)
    instance = await ClientInstance.of(ClientOptions(name_server=name_server))
    joining = Joining(unique("group"))
    await instance.join_consumer(joining)
    instance.rebalance_soon()
    await asyncio.sleep(0.1)
    assert not joining.rebalanced.is_set()
    joining.rebalances = True
    instance.rebalance_soon()
    async with asyncio.timeout(5):
        await joining.rebalanced.wait()
    await instance.leave()
