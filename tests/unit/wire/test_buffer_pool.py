"""BufferPool: buffers of large frames are reused, and the pool is bounded."""

import asyncio
import threading

from firearrow._native.wire.buffer_pool import KEPT_BYTES, BufferPool, MemoryBudget
from tests.support.connections import Echo, connected, feed, requests

LARGE = 3 << 20
BEGUN = 400_000


def test_the_smallest_buffer_that_is_large_enough() -> None:
    pool, buffers = BufferPool(), [bytearray(size) for size in (500, 300, 400)]
    for buffer in buffers:
        pool.release(buffer)
    assert pool.bytes == 1200
    assert pool.acquire(301) is buffers[2]
    assert pool.acquire(501) is None
    assert pool.acquire(0) is buffers[1]
    assert pool.acquire(500) is buffers[0]
    assert (pool.bytes, pool.acquire(0)) == (0, None)


def test_the_pool_is_bounded_and_drops_small_buffers_first() -> None:
    pool = BufferPool()
    half, quarter = bytearray(KEPT_BYTES // 2), bytearray(KEPT_BYTES // 4)
    pool.release(quarter)
    pool.release(half)
    pool.release(bytearray(KEPT_BYTES // 2))
    assert pool.bytes == KEPT_BYTES
    assert pool.acquire(1) is not quarter
    pool.release(bytearray(KEPT_BYTES + 1))
    assert pool.bytes == KEPT_BYTES // 2


def test_a_large_frame_reuses_the_buffer_of_another_connection() -> None:
    frame, first, second = _in_a_separate_thread()
    assert first < frame, "no pooled buffer: it grows with the received bytes"
    assert second >= frame, "the previous frame's buffer, taken when the next frame begins"


def _in_a_separate_thread() -> tuple[int, int, int]:
    """Bytes of the frame; bytes that the connections hold after a part of it has arrived."""
    held: list[int] = []

    def receive() -> None:
        loop = asyncio.new_event_loop()
        frame = requests(1, LARGE)
        for _ in range(2):
            connection = Echo(loop, budget=MemoryBudget(loop, 1 << 30, lambda: None))
            connected(connection)
            feed(connection, frame[:BEGUN])
            held.append(connection.held)
            feed(connection, frame[BEGUN:])
            assert [len(command.body) for command in connection.commands] == [LARGE]
            assert connection.held == 0
        held.append(len(frame))
        loop.close()

    thread = threading.Thread(target=receive)
    thread.start()
    thread.join()
    first, second, size = held
    return size, first, second
