"""`--advertise`: a broker whose ports are mapped to others, as a container's are, names the mapped ones to clients."""

import asyncio
import socket
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.client import Admin
from firearrow.client.admin_api.message_queries import decode_offset_id
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually_async
from tests.support.port_mapping import PortMapping
from tests.support.requests import send
from tests.support.round_trip import send_and_receive

WAIT_S = 15


def test_clients_reach_a_broker_whose_ports_are_mapped(tmp_path: Path) -> None:
    async def main() -> None:
        async with PortMapping() as port, PortMapping() as naming:
            args = ("--advertise", port.address)
            with BrokerProcess(tmp_path / "store", *args) as broker:
                port.target, naming.target = broker.running.address, broker.running.name_server
                assert port.target != port.address
                offset_id, message = await send_and_receive(naming.address, "Mapped", b"through the mapping")
                assert message.body == b"through the mapping"
                assert port.connections >= 2
                assert decode_offset_id(offset_id)[0] == port.address
                async with Admin(naming.address) as admin:
                    before = port.connections
                    assert (await admin.view_message("Mapped", offset_id)).body == message.body
                    assert port.connections > before
                    assert await _addresses(admin) == [port.address]
                assert broker.stop() == 0

    asyncio.run(main())


def test_other_name_servers_get_the_advertised_address(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "names") as other:
        args = ("--namesrv", other.running.name_server, "--namesrv-listen", "off")
        settings = ("--set", "brokerName=mapped", "--advertise", "broker.invalid:20911")
        with BrokerProcess(tmp_path / "store", *args, *settings) as broker:
            asyncio.run(_until_registered(other.running.name_server, "broker.invalid:20911"))
            assert "brokerIP1=broker.invalid has no address here" in broker.log.read_text()
            with broker.connect() as connection:
                body = connection.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
            assert {"brokerIP1=broker.invalid", "advertisedPort=20911"} <= set(body)
            assert broker.stop() == 0


async def _addresses(admin: Admin) -> list[str]:
    brokers = (await admin.cluster_info()).brokers
    return [address for members in brokers.values() for address in members.values()]


async def _until_registered(name_server: str, address: str) -> None:
    async with Admin(name_server) as admin:

        async def registered() -> bool:
            return address in await _addresses(admin)

        await eventually_async(registered, WAIT_S)


def test_a_name_is_advertised_as_it_is_and_stored_as_its_address(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--advertise", "localhost:20911") as broker:
        host = socket.getaddrinfo("localhost", None)[0][4][0]
        with broker.connect() as connection, broker.connect_name_server() as naming:
            assert b'"localhost:20911"' in naming.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
            offset_id = send(connection, "Named", b"x").ext["msgId"]
        address = f"[{host}]:20911" if ":" in str(host) else f"{host}:20911"
        assert decode_offset_id(offset_id)[0] == address
        assert broker.stop() == 0
