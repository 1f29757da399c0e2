"""Which connections are closed when there are too many or they hold too much."""

import asyncio
import contextlib
import resource
import select
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.memory_limits import KERNEL_BYTES_MAX
from firearrow.broker.net import connection_limits
from firearrow.broker.net.connection_limits import (
    RESERVED_MAX,
    connections_max,
    idle_newcomers,
    largest_holders,
    unsent_bytes,
)
from firearrow.broker.net.server import Server
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send

CROWD = 200


@dataclass
class One:
    held: int = 0
    received_frames: int = 0
    last_seen: float = 0.0


def test_descriptors_are_left_for_the_store() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = connections_max()
    raised, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised >= soft
    assert hard in (raised, resource.RLIM_INFINITY) or raised == 1 << 20
    assert raised - most == min(raised // 4, RESERVED_MAX)


def test_the_heaviest_are_closed_until_it_is_enough() -> None:
    crowd = [One(5), One(50), One(20), One(0)]
    assert largest_holders(crowd, 0) == []
    assert largest_holders(crowd, 50) == [crowd[1]]
    assert largest_holders(crowd, 51) == [crowd[1], crowd[2]]
    assert largest_holders(crowd, 1000) == [crowd[1], crowd[2], crowd[0]]


def test_silent_connections_are_those_that_sent_nothing() -> None:
    crowd = [One(last_seen=1.0), One(last_seen=5.0), One(received_frames=1, last_seen=1.0)]
    assert idle_newcomers(crowd, 5.0) == [crowd[0]]


async def is_open(reader: asyncio.StreamReader) -> bool:
    """Nothing is ever sent to it: it is open while nothing can be read."""
    try:
        return await asyncio.wait_for(reader.read(1), 0.1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def serve(work: Callable[[Server, int], Awaitable[None]], *, engine: bool) -> None:
    async def run() -> None:
        server = Server(asyncio.get_running_loop(), idle_s=60, frame_bytes_max=1 << 20, use_poller=engine)
        _, port = await server.listen("127.0.0.1", 0, lambda request, peer: peer.reply(request.answer()))
        server.start_serving()
        try:
            await work(server, port)
        finally:
            await server.close(1)

    asyncio.run(run())


WAYS = pytest.mark.parametrize("engine", [True, False])


@WAYS
def test_one_more_than_the_limit_is_closed(monkeypatch: pytest.MonkeyPatch, engine: bool) -> None:
    monkeypatch.setattr(connection_limits, "connections_max", lambda: 2)

    async def work(server: Server, port: int) -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert [await is_open(reader) for reader, _ in opened] == [True, True, False]
        assert len(server.connections) == 2
        for _, writer in opened:
            writer.close()

    serve(work, engine=engine)


@WAYS
def test_silent_connections_are_closed_for_new_ones(monkeypatch: pytest.MonkeyPatch, engine: bool) -> None:
    monkeypatch.setattr(connection_limits, "connections_max", lambda: 2)
    monkeypatch.setattr(connection_limits, "IDLE_NEWCOMER_S", -1.0)

    async def work(server: Server, port: int) -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert not [reader for reader, _ in opened if await is_open(reader)]
        late = await asyncio.open_connection("127.0.0.1", port)
        assert await is_open(late[0])
        for _, writer in (*opened, late):
            writer.close()

    serve(work, engine=engine)


def test_what_waits_in_the_kernel_is_shared() -> None:
    assert unsent_bytes(0, KERNEL_BYTES_MAX) == connection_limits.UNSENT_BYTES_MAX
    few = KERNEL_BYTES_MAX // connection_limits.UNSENT_BYTES_MAX
    assert unsent_bytes(few - 1, KERNEL_BYTES_MAX) == connection_limits.UNSENT_BYTES_MAX
    assert unsent_bytes(few, KERNEL_BYTES_MAX) < connection_limits.UNSENT_BYTES_MAX
    many = KERNEL_BYTES_MAX // connection_limits.UNSENT_BYTES_MIN
    assert (
        unsent_bytes(many - 1, KERNEL_BYTES_MAX)
        == unsent_bytes(many, KERNEL_BYTES_MAX)
        == unsent_bytes(1 << 20, KERNEL_BYTES_MAX)
        == connection_limits.UNSENT_BYTES_MIN
    )


def test_many_expensive_requests_do_not_delay_connected_clients(tmp_path: Path) -> None:
    """Many connect and send expensive requests; a send waits for a few of them, not for all."""
    much = RemotingCommand(
        RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[' + b"{}," * 50_000 + b"{}]}"
    ).encode()
    with (
        BrokerProcess(tmp_path / "store") as broker,
        broker.connect() as background,
        contextlib.ExitStack() as crowd,
    ):
        assert send(background, "T", b"before").code == 0
        members = [crowd.enter_context(socket.create_connection(broker.address)) for _ in range(CROWD)]
        for member in members:
            member.sendall(much)
        sends = 0
        while len(select.select(members, [], [], 0)[0]) < CROWD:
            assert send(background, "T", b"meanwhile").code == 0
            sends += 1
        assert sends > CROWD // 10
        for member in members:
            member.settimeout(60)
            assert member.recv(4)
        assert broker.stop() == 0
