"""Shelf: rooms of large frames are used again, and what is kept of them is bounded."""

import asyncio
import threading

from firearrow._native.wire.budget import Budget
from firearrow._native.wire.shelf import KEPT_BYTES, Shelf
from tests.support.connections import Echo, connected, feed, requests

LARGE = 3 << 20
BEGUN = 400_000


def test_the_smallest_room_that_is_large_enough() -> None:
    shelf, rooms = Shelf(), [bytearray(size) for size in (500, 300, 400)]
    for room in rooms:
        shelf.give(room)
    assert shelf.bytes == 1200
    assert shelf.take(301) is rooms[2]
    assert shelf.take(501) is None
    assert shelf.take(0) is rooms[1]
    assert shelf.take(500) is rooms[0]
    assert (shelf.bytes, shelf.take(0)) == (0, None)


def test_what_is_kept_has_a_bound_and_small_ones_go_first() -> None:
    shelf = Shelf()
    half, quarter = bytearray(KEPT_BYTES // 2), bytearray(KEPT_BYTES // 4)
    shelf.give(quarter)
    shelf.give(half)
    shelf.give(bytearray(KEPT_BYTES // 2))
    assert shelf.bytes == KEPT_BYTES
    assert shelf.take(1) is not quarter
    shelf.give(bytearray(KEPT_BYTES + 1))
    assert shelf.bytes == KEPT_BYTES // 2


def test_a_large_frame_comes_to_lie_where_another_connections_was() -> None:
    frame, first, second = _in_a_thread_of_its_own()
    assert first < frame, "nothing lay ready: the room grows with what comes"
    assert second >= frame, "the room of the frame before, taken as soon as the next has begun"


def _in_a_thread_of_its_own() -> tuple[int, int, int]:
    """Bytes of the frame; what the connections hold when a part of it has come."""
    held: list[int] = []

    def receive() -> None:
        loop = asyncio.new_event_loop()
        frame = requests(1, LARGE)
        for _ in range(2):
            conn = Echo(loop, budget=Budget(loop, 1 << 30, lambda: None))
            connected(conn)
            feed(conn, frame[:BEGUN])
            held.append(conn.held)
            feed(conn, frame[BEGUN:])
            assert [len(command.body) for command in conn.commands] == [LARGE]
            assert conn.held == 0
        held.append(len(frame))
        loop.close()

    thread = threading.Thread(target=receive)
    thread.start()
    thread.join()
    first, second, size = held
    return size, first, second
