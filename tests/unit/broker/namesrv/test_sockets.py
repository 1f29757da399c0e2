"""A name server alone on a real port: recorded and cut frames; a closed socket unregisters its broker."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.base.peer import Address
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.server import Server
from firearrow.broker.tables.naming_options import NamingOptions
from tests.golden import session
from tests.support.clock import ManualClock
from tests.support.name_server_harness import config, no_connection, register_body, register_request

WAIT_S = 20.0


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: Address) -> "Client":
        return cls(*await asyncio.open_connection(*address))

    async def call(self, frame: bytes, cut: int | None = None) -> RemotingCommand:
        """Send a frame, in two parts if `cut` is given, and read the response."""
        self._writer.write(frame if cut is None else frame[:cut])
        await self._writer.drain()
        if cut is not None:
            await asyncio.sleep(0)
            self._writer.write(frame[cut:])
        head = await self._reader.readexactly(4)
        return RemotingCommand.decode(head + await self._reader.readexactly(*struct.unpack(">i", head)))

    async def route_code(self, topic: str) -> int:
        return (
            await self.call(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).encode())
        ).code

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def served(main: Callable[[Address, NameServer], Awaitable[None]]) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        naming = NameServer(ManualClock(), NamingOptions(), lambda: None, no_connection)
        server = Server(loop, idle_s=120, frame_bytes_max=16 << 20)
        address = await server.listen("127.0.0.1", 0, Dispatch(naming.handlers()))
        server.start_serving()
        naming.start(loop)
        try:
            async with asyncio.timeout(WAIT_S):
                await main(address, naming)
        finally:
            naming.stop()
            await server.close(1)

    uvloop.run(serve())


def test_a_recorded_broker_registers_and_is_removed_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = next(frame for frame in session("start") if frame.line["name"] == "REGISTER_BROKER")
    frame = recorded.raw
    assert frame is not None

    async def main(address: Address, naming: NameServer) -> None:
        broker, client = await Client.to(address), await Client.to(address)
        assert await client.route_code("TBW102") == ResponseCode.TOPIC_NOT_EXIST
        answer = await broker.call(frame, cut=len(frame) // 2)
        assert (answer.code, answer.opaque) == (0, recorded.line["opaque"])
        assert await client.route_code("TBW102") == 0
        gone = asyncio.Event()
        left = naming.routes.unregister

        def unregister(cluster: str, address: str, *, own: bool = False) -> None:
            left(cluster, address, own=own)
            gone.set()

        monkeypatch.setattr(naming.routes, "unregister", unregister)
        await broker.close()
        await gone.wait()
        assert await client.route_code("TBW102") == ResponseCode.TOPIC_NOT_EXIST
        await client.close()

    served(main)


def test_every_cut_of_a_register_frame() -> None:
    frame = register_request(body=register_body(config("T1"), config("T2"))).encode()

    async def main(address: Address, naming: NameServer) -> None:
        client = await Client.to(address)
        for cut in range(1, len(frame)):
            assert (await client.call(frame, cut)).code == 0
        cluster = await client.call(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO).encode())
        assert list(fastjson.loads(cluster.body)["brokerAddrTable"]) == ["a"]
        await client.close()

    served(main)


def test_a_large_registration_over_a_socket() -> None:
    request = register_request(body=register_body(*(config(f"T{n}") for n in range(5000))))

    async def main(address: Address, naming: NameServer) -> None:
        broker = await Client.to(address)
        assert (await broker.call(request.encode())).code == 0
        assert await broker.route_code("T4999") == 0
        await broker.close()

    served(main)


def test_codes_of_a_broker_are_not_served() -> None:
    async def main(address: Address, naming: NameServer) -> None:
        client = await Client.to(address)
        answer = await client.call(RemotingCommand(RequestCode.SEND_MESSAGE).encode())
        assert (answer.code, answer.remark) == (3, " request type 10 not supported")
        await client.close()

    served(main)
