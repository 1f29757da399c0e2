"""TransactionService without room: the log's file cannot grow, a message or a mark is refused."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.store import Placed, PutRefused, PutStatus
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.errors import Refusal
from firearrow.broker.messages import Message
from tests.life.transacting import COMMIT, HALF, OP, ROLLBACK, Transacting, asked_for


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Transacting]:
    room = Transacting(tmp_path)
    yield room
    room.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """A limit of the size of files stands for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_it_open(room: Transacting) -> None:
    """The write fails: neither message nor mark is there."""
    room.end(room.prepare(b"0"), COMMIT)
    first, second = room.prepare(b"1"), room.prepare(b"2")
    with full_disk():
        room.tell(first, COMMIT)
        room.tell(second, ROLLBACK)
        room.timers.run()
    codes = [answer.code for answer in room.peer.replies]
    assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert (room.bodies("T", 1), room.marks()) == ([b"0"], [b"0,"])
    room.peer.replies.clear()
    room.end(first, COMMIT)
    room.end(second, COMMIT)
    assert room.bodies("T", 1) == [b"0", b"1", b"2"]


def test_a_full_disk_that_refuses_the_message_leaves_it_open(room: Transacting) -> None:
    """There is no room for the first entry of the topic's queue."""
    half = room.prepare()
    with full_disk(), pytest.raises(Refusal, match="not available"):
        room.end(half, COMMIT)
    answer = room.end(half, COMMIT)
    assert answer is not None
    assert room.bodies("T", 1) == [b"x"]


@pytest.mark.parametrize("fault", [PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "disk"), MemoryError()])
def test_a_mark_that_finds_no_room_comes_later(
    room: Transacting, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The final message is staged, its mark is refused: it stays decided. A rollback is refused with its mark."""
    first, second = room.prepare(b"1"), room.prepare(b"2")
    put = room.appender.put

    def refuse(message: Message, **how: Any) -> Placed:  # noqa: ANN401
        if message.topic == OP:
            raise fault
        return put(message, **how)

    with monkeypatch.context() as patch:
        patch.setattr(room.appender, "put", refuse)
        room.tell(first, COMMIT)
        room.tell(second, ROLLBACK)
        room.timers.run()
    codes = sorted(answer.code for answer in room.peer.replies)
    assert codes == [0, ResponseCode.SERVICE_NOT_AVAILABLE]
    room.peer.replies.clear()
    room.end(first, COMMIT)
    assert (room.bodies("T", 1), room.marks()) == ([b"1"], [])
    asked = room.join()
    [request] = room.next_round(asked)
    assert asked_for(room, request).body == b"2"
    assert room.marks() == [b"0,"]


def test_a_full_disk_ends_a_round_and_loses_nothing(room: Transacting) -> None:
    asked = room.join()
    half = room.prepare()
    with full_disk():
        assert room.next_round(asked) == []
    assert len(room.records(HALF)) == 1
    [request] = room.next_round(asked)
    room.end(asked_for(room, request), COMMIT, checked=True)
    room.end(half, COMMIT)
    assert room.bodies("T", 1) == [b"x"]
