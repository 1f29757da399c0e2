"""The master as a slave sees it: what happens while a connection to it is being opened."""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.keep_alive import OPTIONS
from firearrow.broker.base.peer import Peer
from firearrow.broker.net.server import Server
from firearrow.broker.replication.session.master_api import Master
from tests.support.broker_process import BrokerProcess


class SlowWay:
    """Opens a connection once it is let."""

    def __init__(self) -> None:
        self._server = Server(asyncio.get_running_loop(), idle_s=60, frame_bytes_max=1 << 24)
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.peers: list[Peer] = []

    async def connect(self, host: str, port: int) -> Peer:
        self.asked.set()
        await self.open.wait()
        peer = await self._server.connect(host, port)
        self.peers.append(peer)
        return peer

    async def close(self) -> None:
        await self._server.close(0)


def registered(broker: BrokerProcess) -> dict[str, str]:
    return {"masterAddr": "{}:{}".format(*broker.address)}


def test_a_connection_to_a_former_master_is_not_used(tmp_path: Path) -> None:
    """The name server reports another one while it is opened."""

    async def run(former: BrokerProcess, newer: BrokerProcess) -> str:
        way = SlowWay()
        master = Master(way.connect, "")
        master.registered(registered(former))
        first = asyncio.ensure_future(master.log_range())
        await way.asked.wait()
        master.registered(registered(newer))
        way.open.set()
        with pytest.raises(ConnectionError, match="has changed"):
            await first
        assert way.peers[0].closed
        answer = await master.ask(RequestCode.GET_BROKER_CONFIG)
        await way.close()
        return answer.body.decode()

    with (
        BrokerProcess(tmp_path / "a", "--set", "brokerName=former") as former,
        BrokerProcess(tmp_path / "b", "--set", "brokerName=newer") as newer,
    ):
        assert "brokerName=newer" in asyncio.run(run(former, newer))


def test_a_master_that_is_gone_without_a_word_is_noticed_by_the_kernel(tmp_path: Path) -> None:
    async def run(broker: BrokerProcess) -> None:
        way = SlowWay()
        way.open.set()
        master = Master(way.connect, "")
        master.registered(registered(broker))
        await master.log_range()
        ours = socket.fromfd(descriptor_to(broker.address), socket.AF_INET, socket.SOCK_STREAM)
        with ours:
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == OPTIONS["TCP_USER_TIMEOUT"]
        await way.close()

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(run(broker))


def descriptor_to(address: tuple[str, int]) -> int:
    """Of this process's connection to that address."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:
            if copy.getpeername() == address:
                return int(name)
    raise LookupError(address)


def test_who_waits_for_a_connection_hears_that_the_master_has_left() -> None:
    """Two ask; the one that waits for the other's connection must not end the slave's work."""

    async def run() -> None:
        way = SlowWay()
        master = Master(way.connect, "", leaves=True)
        master.registered({"masterAddr": "127.0.0.1:1"})
        asking = [asyncio.ensure_future(master.log_range()) for _ in range(2)]
        await way.asked.wait()
        master.has_left()
        way.open.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert [isinstance(each, OSError) for each in found] == [True, True], found
        await way.close()

    asyncio.run(run())
