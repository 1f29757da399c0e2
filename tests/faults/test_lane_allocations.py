"""Every allocation of the fast lane and of its turn may fail: batches stay whole, and whoever comes next is served."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.path.room import Line, Room, batch, plain
from tests.store.stores import bodies, item, properties_of

testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
pytestmark = pytest.mark.alone
FAILURES = 100
ITEMS = 5


def five(opaque: int) -> bytes:
    items = [
        item(b"%d.%d" % (opaque, n), properties_of(UNIQ_KEY=f"{opaque * ITEMS + n:032X}"))
        for n in range(ITEMS)
    ]
    return batch(opaque, b"".join(items), queue_id=1)


class Shaken:
    """A room, one allocation of whose work fails."""

    def __init__(self, folder: Path, *, sync_flush: bool) -> None:
        self.room = Room(folder, sync_flush=sync_flush)
        self.opaques = count(1)
        self.sync_flush = sync_flush
        self.failed = 0
        line = Line(self.room)
        line.feed(plain(next(self.opaques)), five(next(self.opaques)))
        self.turn()

    def failing(self, number: int, work: Callable[..., object], *arguments: object) -> bool:
        """Whether it came to the end; a loop goes on behind what failed."""
        testcapi.set_nomemory(number, number + 1)
        try:
            work(*arguments)
        except MemoryError:
            testcapi.remove_mem_hooks()
            self.failed += 1
            return False
        testcapi.remove_mem_hooks()
        return True

    def failing_turn(self, number: int) -> None:
        soon, self.room.loop.soon = self.room.loop.soon, []
        for callback, arguments in soon:
            self.failing(number, callback, *arguments)
        self.turn()

    def turn(self) -> None:
        self.room.loop.turn()
        if self.sync_flush:
            self.room.store.sync()
            self.room.turn.synced(self.room.store.written)

    def is_served(self) -> bool:
        line, opaque = Line(self.room), next(self.opaques)
        line.feed(plain(opaque))
        self.turn()
        return line.answers() == [(opaque, ResponseCode.SUCCESS)]

    def batches(self) -> Counter[int]:
        """How often so many messages of one batch are there."""
        found = Counter(body.split(b".")[0] for body in bodies(self.room.store, queue_id=1) if b"." in body)
        return Counter(found.values())


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_request_whose_allocation_fails_ends_its_connection_alone(tmp_path: Path, sync_flush: bool) -> None:
    shaken = Shaken(tmp_path, sync_flush=sync_flush)
    for number in range(FAILURES):
        line, other = Line(shaken.room), Line(shaken.room)
        opaques = [next(shaken.opaques) for _ in range(4)]
        frames = [plain(opaques[0]), five(opaques[1]), plain(opaques[2]), five(opaques[3])]
        alone = next(shaken.opaques)
        other.feed(plain(alone))
        if not shaken.failing(number, line.feed, *frames):
            line.wire.close()
        shaken.turn()
        assert other.answers() == [(alone, ResponseCode.SUCCESS)], number
        assert shaken.is_served(), number
    assert shaken.failed > 10
    assert set(shaken.batches()) == {ITEMS}


def test_a_turn_whose_allocation_fails_answers_all_or_closes(tmp_path: Path) -> None:
    shaken = Shaken(tmp_path, sync_flush=False)
    closed = 0
    for number in range(FAILURES // 2):
        lines, opaques = [Line(shaken.room) for _ in range(3)], [next(shaken.opaques) for _ in range(3)]
        for line, opaque in zip(lines, opaques, strict=True):
            line.feed(plain(opaque), five(opaque))
        shaken.failing_turn(number)
        for line, opaque in zip(lines, opaques, strict=True):
            assert [asked for asked, _ in line.answers()] == [opaque] * 2 or line.wire.closed, number
            closed += line.wire.closed
        assert shaken.is_served(), number
    assert shaken.failed > 1
    assert closed >= 1
    assert shaken.failed + closed > 10, "each of a turn's allocations is met, by whomever it harms"
    assert set(shaken.batches()) == {ITEMS}


def test_a_synced_turn_whose_allocation_fails_leaves_the_next_ones_alone(tmp_path: Path) -> None:
    shaken = Shaken(tmp_path, sync_flush=True)
    for number in range(FAILURES // 2):
        line = Line(shaken.room)
        line.feed(plain(next(shaken.opaques)), five(next(shaken.opaques)))
        shaken.failing_turn(number)
        assert shaken.is_served(), number
    assert shaken.failed > 1
    assert set(shaken.batches()) == {ITEMS}
