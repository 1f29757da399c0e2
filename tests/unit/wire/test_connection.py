"""Connection: frames come out whole at any cut, responses are sent together, a peer that does not read is not read."""

import asyncio
import struct
import time
from collections.abc import Iterator

import pytest

from firearrow._native.wire.command import RemotingCommand
from tests.support.connections import Echo, connected, feed, requests, run_once

FRAMES_PER_PASS = 256


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_frames_fed_in_two_parts_at_every_cut(loop: asyncio.AbstractEventLoop) -> None:
    data = requests(3, 5)
    for cut in range(len(data) + 1):
        connection = Echo(loop)
        connected(connection)
        feed(connection, data[:cut])
        feed(connection, data[cut:])
        assert [c.opaque for c in connection.commands] == [0, 1, 2]
        assert connection.received_frames == 3


def test_frames_fed_byte_by_byte(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop)
    connected(connection)
    for byte in requests(4, 3):
        feed(connection, bytes([byte]))
    assert [c.opaque for c in connection.commands] == [0, 1, 2, 3]


@pytest.mark.parametrize("chunk", [1 << 14, 1 << 17, (1 << 18) - 1, 1 << 18, 1 << 20])
def test_a_big_frame_among_small_ones_in_chunks_of_any_size(
    loop: asyncio.AbstractEventLoop, chunk: int
) -> None:
    big = RemotingCommand(10, body=bytes(range(256)) * 4096 * 4, opaque=7).encode()
    data = requests(2) + big + requests(2)
    connection = Echo(loop)
    connected(connection)
    for at in range(0, len(data), chunk):
        feed(connection, data[at : at + chunk])
    assert [c.opaque for c in connection.commands] == [0, 1, 7, 0, 1]
    assert connection.commands[2].body == bytes(range(256)) * 4096 * 4


def test_two_connections_share_the_receive_window_and_not_their_bytes(
    loop: asyncio.AbstractEventLoop,
) -> None:
    one, other = Echo(loop), Echo(loop)
    connected(one)
    connected(other)
    first, second = requests(3, 100), requests(2, 40_000)
    step = 37
    for at in range(0, max(len(first), len(second)), step):
        feed(one, first[at : at + step])
        feed(other, second[at : at + step])
    assert [len(c.body) for c in one.commands] == [100] * 3
    assert [len(c.body) for c in other.commands] == [40_000] * 2


def test_responses_of_one_batch_are_one_write(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop, answer_bytes=10)
    transport = connected(connection)
    feed(connection, requests(20))
    assert transport.writes == []
    run_once(loop)
    assert len(transport.writes) == 1


def test_a_flood_on_one_connection_does_not_starve_the_others(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop, reads_always=True)  # for which time does not count
    transport = connected(connection)
    feed(connection, requests(FRAMES_PER_PASS * 2 + 5))
    assert len(connection.commands) == FRAMES_PER_PASS
    assert not transport.reading
    run_once(loop)
    assert len(connection.commands) == FRAMES_PER_PASS * 2
    run_once(loop)
    assert len(connection.commands) == FRAMES_PER_PASS * 2 + 5
    assert transport.reading


class Slow(Echo):
    """Works on each command for longer than its share of a pass."""

    def received(self, command: RemotingCommand) -> None:
        super().received(command)
        until = time.thread_time_ns() + 2_500_000
        while time.thread_time_ns() < until:
            pass


def test_expensive_work_on_one_connection_does_not_starve_the_others(loop: asyncio.AbstractEventLoop) -> None:
    connection = Slow(loop)
    transport = connected(connection)
    feed(connection, requests(5))
    assert len(connection.commands) == 2
    assert not transport.reading
    run_once(loop)
    assert len(connection.commands) == 4
    run_once(loop)
    assert [command.opaque for command in connection.commands] == list(range(5))
    assert transport.reading


def test_a_peer_that_does_not_read_is_not_read(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop, answer_bytes=1000, high_water=10_000)
    transport = connected(connection)
    feed(connection, requests(100))
    answered_at_once = len(connection.commands)
    assert answered_at_once <= 11
    connection.pause_writing()
    run_once(loop)
    run_once(loop)
    assert len(connection.commands) == answered_at_once
    assert not transport.reading
    assert connection.write_paused
    connection.resume_writing()
    for _ in range(40):
        run_once(loop)
    assert [c.opaque for c in connection.commands] == list(range(100))
    assert transport.reading


@pytest.mark.parametrize(
    "bad", [struct.pack(">i", -1), struct.pack(">iI", 4, 9), b"\x16\x03\x01\x00", b"{}{}{}{}"]
)
def test_a_lost_frame_boundary_closes_after_the_answers_before_it(
    loop: asyncio.AbstractEventLoop, bad: bytes
) -> None:
    connection = Echo(loop, answer_bytes=1)
    transport = connected(connection)
    feed(connection, requests(2) + bad + bytes(8))
    assert len(connection.commands) == 2
    assert transport.closing
    assert len(transport.writes) == 1
    assert len(connection.faults) == 1


def test_buffers_grow_with_received_and_not_with_declared_bytes(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop)
    connected(connection)
    feed(connection, struct.pack(">iI", 15 << 20, 2) + b"{}")
    for _ in range(10):
        feed(connection, bytes(20_000))
        assert len(connection.get_buffer(-1)) <= 1 << 18


def test_nothing_is_sent_after_the_connection_is_lost(loop: asyncio.AbstractEventLoop) -> None:
    connection = Echo(loop)
    transport = connected(connection)
    connection.connection_lost(None)
    connection.send(b"x")
    run_once(loop)
    assert (transport.writes, connection.closed, connection.losses) == ([], True, 1)
