"""The bytes that connections hold together are counted while they hold them, and reported once above the limit."""

import asyncio
from collections.abc import Iterator

import pytest

from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from tests.support.connections import feed, run_once
from tests.support.transport import RecordingTransport


class Quiet(Connection):
    def received(self, command: RemotingCommand) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Slack(RecordingTransport):
    """Accepts a limited number of bytes and buffers the others."""

    waiting = 0

    def write(self, data: bytes) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting


def connected(loop: asyncio.AbstractEventLoop, budget: MemoryBudget) -> tuple[Quiet, Slack]:
    connection, transport = Quiet(loop, budget=budget), Slack()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def half(size: int) -> bytes:
    """That many bytes of a frame that needs 1,000 more."""
    return (size + 996).to_bytes(4) + bytes(size - 4)


def test_it_is_reported_past_the_limit_and_not_at_it(loop: asyncio.AbstractEventLoop) -> None:
    reports: list[int] = []
    budget = MemoryBudget(loop, 3000, lambda: reports.append(budget.held))
    first, _ = connected(loop, budget)
    second, _ = connected(loop, budget)
    feed(first, half(2000))
    feed(second, half(1000))
    run_once(loop)
    assert (budget.held, first.held, second.held, reports) == (3000, 2000, 1000, [])
    third, _ = connected(loop, budget)
    feed(third, half(8))
    run_once(loop)
    assert reports == [3008]


def test_closed_connections_do_not_count(loop: asyncio.AbstractEventLoop) -> None:
    budget = MemoryBudget(loop, 1 << 20, lambda: None)
    connection, transport = connected(loop, budget)
    feed(connection, half(2000))
    feed(connection, bytes(1000))
    assert budget.held == 0
    connection.send(b"answer" * 100)
    connection.flush()
    assert budget.held == 600
    transport.waiting = 0
    connection.send(b"x")
    connection.flush()
    assert budget.held == 1
    connection.connection_lost(None)
    assert (budget.held, connection.held) == (0, 0)
