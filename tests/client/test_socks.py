"""Connections through a SOCKS5 proxy: by network, with a user, refused; other hosts are connected directly."""

import asyncio
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest

from firearrow.client.base.errors import ConfigError, ConnectFailed
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, SocksProxy
from firearrow.client.remoting.channels import SocksProxies
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique

VERSION, CONNECT, BY_NAME, BY_ADDRESS = 5, 1, 3, 1


class Socks:
    """RFC 1928 with user and password (RFC 1929), for one test."""

    def __init__(self, user: bytes = b"", password: bytes = b"") -> None:
        self.user, self.password = user, password
        self.reached: list[tuple[str, int]] = []
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(bytes([VERSION, 2 if self.user else 0]))
        if self.user and not await self._allowed(reader, writer):
            return
        _, command, _, kind = await reader.readexactly(4)
        assert command == CONNECT
        if kind == BY_NAME:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            assert kind == BY_ADDRESS
            host = ".".join(map(str, await reader.readexactly(4)))
        [port] = struct.unpack(">H", await reader.readexactly(2))
        self.reached.append((host, port))
        there_reader, there = await asyncio.open_connection(host, port)
        writer.write(bytes([VERSION, 0, 0, BY_ADDRESS]) + bytes(6))
        await asyncio.wait(
            [asyncio.create_task(_pump(reader, there)), asyncio.create_task(_pump(there_reader, writer))]
        )

    async def _allowed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _, length = await reader.readexactly(2)
        user = await reader.readexactly(length)
        password = await reader.readexactly((await reader.readexactly(1))[0])
        allowed = (user, password) == (self.user, self.password)
        writer.write(bytes([1, not allowed]))
        return allowed


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_sends_go_through_the_proxy(name_server: str, topics: Callable[..., str]) -> None:
    async with Socks(b"user", b"hush") as proxy:
        through = SocksProxy(proxy.address, "user", "hush")
        client = ClientOptions(name_server=name_server, socks_proxies={"127.0.0.0/8": through})
        async with Producer(unique("producer"), client=client) as producer:
            await producer.send(Message(topics(), b"around the corner"))
        assert len(proxy.reached) == 2, "name server and broker"
        wrong = ClientOptions(
            name_server=name_server, socks_proxies={"*": SocksProxy(proxy.address, "user", "?")}
        )
        instance = await ClientInstance.of(wrong)
        with pytest.raises(ConnectFailed, match="proxy"):
            await instance.routes.refresh("t")
        await instance.leave()
    gone = await ClientInstance.of(
        ClientOptions(name_server=name_server, socks_proxies={"*": SocksProxy("127.0.0.1:1")})
    )
    with pytest.raises(ConnectFailed):
        await gone.routes.refresh("t")
    await gone.leave()


async def test_others_go_straight(name_server: str, topics: Callable[..., str]) -> None:
    async with Socks() as proxy:
        client = ClientOptions(
            name_server=name_server, socks_proxies={"10.0.0.0/8": SocksProxy(proxy.address)}
        )
        async with Producer(unique("producer"), client=client) as producer:
            await producer.send(Message(topics(), b"straight on"))
        assert proxy.reached == []


def test_which_proxy_is_whose() -> None:
    near, far = SocksProxy("a:1"), SocksProxy("b:2")
    proxies = SocksProxies({"10.0.0.0/8": near, "fd00::/8": near, "*": far})
    assert [proxies.of(host) for host in ("10.1.2.3", "fd00::1", "192.0.2.1", "broker.example")] == [
        near,
        near,
        far,
        far,
    ]
    assert SocksProxies({"10.0.0.0/8": near}).of("broker.example") is None
    with pytest.raises(ConfigError):
        SocksProxies({"10.0.0.0/99": near})
    for wrong in ("", "host", ":1", "host:x"):
        with pytest.raises(ConfigError):
            SocksProxy(wrong)
    assert "hush" not in repr(SocksProxy("a:1", "user", "hush"))
