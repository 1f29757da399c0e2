"""TransactionService after a stop or a kill, and after another broker: what was decided stays decided."""

from pathlib import Path

import pytest

from firearrow._native.store.record import decode
from firearrow.broker.life.journal import Kind
from firearrow.broker.messages import Message
from tests.life.transacting import COMMIT, GROUP, HALF, OP, ROLLBACK, Transacting, asked_for


def again(room: Transacting, folder: Path, offsets: bytes | None = None) -> Transacting:
    room.kill()
    return Transacting(folder, offsets, room.clock.now_ms())


def test_what_was_decided_before_a_kill_stays_decided(tmp_path: Path) -> None:
    room = Transacting(tmp_path)
    halves = [room.prepare(b"%d" % number) for number in range(30)]
    for half in halves[:20]:
        room.end(half, COMMIT if half.queue_offset % 2 else ROLLBACK)
    room = again(room, tmp_path)
    for half in halves[:20]:
        answer = room.end(half, COMMIT)
        assert answer is not None
        assert answer.code == 0
    asked = room.join()
    requests = room.next_round(asked)
    assert sorted(int(decode(request.body).body) for request in requests) == list(range(20, 30))
    assert [int(body) for body in room.bodies("T", 1)] == list(range(1, 20, 2))


def test_a_kill_after_a_check_asks_for_one_copy(tmp_path: Path) -> None:
    """The file of the offsets is older than the check."""
    room = Transacting(tmp_path)
    old = room.offsets.to_json()
    room.prepare()
    room.next_round()
    room = again(room, tmp_path, old)
    asked = room.join()
    [request] = room.next_round(asked)
    room.end(asked_for(room, request), COMMIT, checked=True)
    assert room.next_round(asked) == []
    assert room.bodies("T", 1) == [b"x"]


def test_a_lost_mark_is_written_at_start(tmp_path: Path) -> None:
    """The write was torn between the final message and its mark."""
    room = Transacting(tmp_path)
    half = room.prepare()
    message = Message("T", 1, b"x", sys_flag=8)
    placed = room.appender.put(message, hooks=False)
    room.journal.note(Kind.DECIDED, "", 0, half.queue_offset, placed.end)
    room.timers.run()
    assert room.marks() == []
    room = again(room, tmp_path)
    room.timers.run()
    assert room.marks() == [b"0,"]
    assert room.next_round(room.join()) == []
    assert len(room.records(HALF)) == 1


def test_a_commit_that_the_log_lacks_is_void(tmp_path: Path) -> None:
    room = Transacting(tmp_path)
    half = room.prepare()
    room.tell(half, COMMIT)
    room = again(room, tmp_path)
    room.timers.run()
    assert (room.bodies("T", 1), room.marks()) == ([], [])
    [_] = room.next_round(room.join())


def test_apaches_offsets_and_marks_are_taken_over(tmp_path: Path) -> None:
    """A batch of marks, some of them below the offset; a copy whose first place was marked."""
    room = Transacting(tmp_path)
    for _ in range(6):
        room.prepare()
    room.put(HALF, b"copy", PGROUP="PG", REAL_TOPIC="T", REAL_QID="1", TRAN_PREPARED_QUEUE_OFFSET="1")
    room.put(OP, b"0,1,4,", TAGS="d")
    room.put(OP, b"5", TAGS="d")
    room.put(OP, b"3,", TAGS="other")
    room.timers.run()
    room.offsets.commit(GROUP, HALF, 0, 2)
    room.kill()
    room = Transacting(tmp_path, room.offsets.to_json(), room.clock.now_ms())
    asked = room.join()
    requests = room.next_round(asked)
    assert [asked_for(room, request).queue_offset for request in requests] == [7, 8]
    assert room.marks()[-1] == b"6,"
    room.next_round()
    assert [half.body for half in room.records(HALF)] == [b"x"] * 6 + [b"copy"] + [b"x"] * 4
    assert room.offset(HALF) == 9


@pytest.mark.parametrize(
    ("last", "marks"), [(b"0", [b"0", b"1", b"2", b"3"]), (b"0,", [b"0,", b"1,2,3,"])], ids=["4", "5"]
)
def test_marks_are_put_as_the_broker_before_us_reads_them(
    tmp_path: Path, last: bytes, marks: list[bytes]
) -> None:
    """Apache 4 takes a mark that names more than one for none, and would ask again for what was decided."""
    room = Transacting(tmp_path)
    halves = [room.prepare() for _ in range(4)]
    room.put(OP, last, TAGS="d")
    room.timers.run()
    room = again(room, tmp_path)
    for half in halves[1:]:
        room.tell(half, ROLLBACK)
    room.timers.run()
    assert room.marks() == marks
    assert room.offset(HALF) == 4
