"""TransactionService with a clock that is told: endings, check-backs, discards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.record import decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.errors import Refusal
from firearrow.broker.messageids import offset_id
from tests.life.room import HOST
from tests.life.transacting import (
    COMMIT,
    DISCARD,
    HALF,
    OP,
    ROLLBACK,
    ROUND_MS,
    TIMEOUT_MS,
    UNKNOWN,
    Transacting,
    asked_for,
)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Transacting]:
    room = Transacting(tmp_path)
    yield room
    room.close()


# ---- decisions ----


def test_a_commit_is_visible_once_and_marked_in_the_same_turn(room: Transacting) -> None:
    half = room.prepare(b"paid")
    assert room.bodies("T", 1) == []
    answer = room.end(half, COMMIT)
    assert answer is not None
    assert answer.code == 0
    [final] = room.records("T", 1)
    assert (final.body, final.prepared_offset, final.sys_flag & 0xC) == (b"paid", half.physical_offset, 8)
    [mark] = room.records(OP)
    assert (mark.body, mark.properties) == (b"0,", {"WAIT": "true", "TAGS": "d"})


def test_a_rollback_is_never_visible(room: Transacting) -> None:
    half = room.prepare()
    answer = room.end(half, ROLLBACK)
    assert answer is not None
    assert answer.code == 0
    assert room.bodies("T", 1) == []
    assert room.marks() == [b"0,"]


def test_unknown_changes_nothing(room: Transacting) -> None:
    answer = room.end(room.prepare(), UNKNOWN)
    assert answer is not None
    assert answer.code == 0
    assert (room.bodies("T", 1), room.marks()) == ([], [])


@pytest.mark.parametrize("what", [4, 1, -8])
def test_what_is_no_decision_is_refused(room: Transacting, what: int) -> None:
    half = room.prepare()
    with pytest.raises(Refusal, match="commitOrRollback"):
        room.end(half, what)
    assert (room.bodies("T", 1), room.marks()) == ([], [])


@pytest.mark.parametrize(("first", "second"), [(8, 8), (8, 12), (12, 8), (12, 12)])
@pytest.mark.parametrize("same_turn", [True, False])
def test_the_first_decision_counts(room: Transacting, first: int, second: int, same_turn: bool) -> None:
    half = room.prepare()
    room.tell(half, first)
    if not same_turn:
        room.timers.run()
    room.tell(half, second)
    room.timers.run()
    assert [answer.code for answer in room.peer.replies] == [0, 0]
    assert room.bodies("T", 1) == ([b"x"] if first == COMMIT else [])
    assert room.marks() == [b"0,"]


def test_decisions_of_a_turn_share_an_op_message(room: Transacting) -> None:
    halves = [room.prepare(b"%d" % number) for number in range(20)]
    for half in halves:
        room.tell(half, COMMIT if half.queue_offset % 2 else ROLLBACK)
    room.timers.run()
    assert room.marks() == [b"".join(b"%d," % number for number in range(20))]
    assert [int(body) for body in room.bodies("T", 1)] == list(range(1, 20, 2))
    assert len(room.peer.replies) == 20


def test_op_messages_are_bounded(tmp_path: Path) -> None:
    room = Transacting(tmp_path, transaction_op_bytes=5)
    halves = [room.prepare() for _ in range(7)]
    for half in halves:
        room.tell(half, ROLLBACK)
    room.timers.run()
    assert room.marks() == [b"0,1,2,", b"3,4,5,", b"6,"]


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 5}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 60}, "Find prepared transaction message failed"),
    ],
)
def test_a_decision_that_does_not_fit_is_refused(
    room: Transacting, fields: dict[str, object], remark: str
) -> None:
    half = room.prepare()
    with pytest.raises(Refusal, match=remark) as refusal:
        room.end(half, COMMIT, **fields)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert (room.bodies("T", 1), room.marks()) == ([], [])


def test_only_half_messages_can_be_committed(room: Transacting) -> None:
    room.put("T", b"plain", 1, PGROUP="PG", REAL_TOPIC="T", REAL_QID="1")
    room.timers.run()
    [plain] = room.records("T", 1)
    with pytest.raises(Refusal, match="Find prepared"):
        room.end(plain, COMMIT)


def test_a_late_decision_with_an_immunity_waits_for_the_check(room: Transacting) -> None:
    half = room.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    room.clock.advance(10_001)
    with pytest.raises(Refusal) as refusal:
        room.end(half, COMMIT)
    assert refusal.value.code == ResponseCode.ILLEGAL_OPERATION
    answer = room.end(half, COMMIT, checked=True)
    assert answer is not None
    assert room.bodies("T", 1) == [b"x"]


def test_a_delayed_transaction_is_delayed_once_it_is_committed(room: Transacting) -> None:
    half = room.prepare(DELAY="2")
    assert room.records("SCHEDULE_TOPIC_XXXX", 1) == []
    room.end(half, COMMIT)
    [scheduled] = room.records("SCHEDULE_TOPIC_XXXX", 1)
    assert (scheduled.properties["REAL_TOPIC"], scheduled.properties["REAL_QID"]) == ("T", "1")
    assert "TRAN_MSG" not in scheduled.properties


def test_transactions_can_be_forbidden(tmp_path: Path) -> None:
    room = Transacting(tmp_path, reject_transactions=True)
    with pytest.raises(Refusal, match="sending transaction message is forbidden") as refusal:
        room.prepare()
    assert refusal.value.code == ResponseCode.NO_PERMISSION


def test_half_messages_that_wait_are_bounded(tmp_path: Path) -> None:
    room = Transacting(tmp_path, halves_max=3)
    halves = [room.prepare() for _ in range(3)]
    with pytest.raises(Refusal, match="at most 3"):
        room.prepare()
    room.end(halves[0], ROLLBACK)
    assert room.prepare().queue_offset == 3


# ---- check-backs ----


def test_an_open_one_is_asked_for_and_its_answer_counts(room: Transacting) -> None:
    asked = room.join()
    first = room.prepare(b"when asked")
    [request] = room.next_round(asked)
    copy = asked_for(room, request)
    assert copy.queue_offset == first.queue_offset + 1
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert decode(request.body).properties == copy.properties | {"WAIT": "false"}
    room.end(copy, COMMIT, checked=True)
    assert room.bodies("T", 1) == [b"when asked"]
    assert (room.offset(HALF), room.offset(OP)) == (2, 1)
    assert room.next_round(asked) == []


@pytest.mark.parametrize("late", [COMMIT, ROLLBACK])
def test_a_late_decision_ends_the_copy(room: Transacting, late: int) -> None:
    """It names the first copy, after two checks."""
    asked = room.join()
    first = room.prepare()
    room.next_round(asked)
    [request] = room.next_round(asked)
    room.end(first, late)
    room.end(asked_for(room, request), COMMIT, checked=True)
    assert room.bodies("T", 1) == ([b"x"] if late == COMMIT else [])
    assert room.next_round(asked) == []


def test_young_ones_and_what_is_decided_are_not_asked_for(room: Transacting) -> None:
    asked = room.join()
    room.end(room.prepare(), COMMIT)
    room.end(room.prepare(), ROLLBACK)
    room.timers.run(ROUND_MS - TIMEOUT_MS)
    room.prepare()
    room.timers.run(TIMEOUT_MS)
    assert asked.requests == []
    assert len(room.records(HALF)) == 3
    [_] = room.next_round(asked)


def test_after_enough_checks_it_is_given_up(tmp_path: Path) -> None:
    room = Transacting(tmp_path, transaction_check_max=3)
    asked = room.join()
    room.prepare(b"forgotten")
    counts = [len(room.next_round(asked)) for _ in range(6)]
    assert counts == [1, 1, 1, 0, 0, 0]
    [discarded] = room.records(DISCARD)
    assert (discarded.body, discarded.properties["TRANSACTION_CHECK_TIMES"]) == (b"forgotten", "3")
    topic = room.topics.get(DISCARD)
    assert topic is not None
    assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)
    assert len(room.records(HALF)) == 4
    assert room.offset(HALF) == 4


def test_three_days_are_too_old(room: Transacting) -> None:
    asked = room.join()
    room.prepare()
    room.clock.advance(72 * 3_600_000 + 1)
    assert room.next_round(asked) == []
    assert room.bodies(DISCARD) == [b"x"]


def test_who_keeps_files_for_longer_asks_for_longer(tmp_path: Path) -> None:
    room = Transacting(tmp_path, reserved_hours=100)
    asked = room.join()
    room.prepare()
    room.clock.advance(99 * 3_600_000)
    assert room.next_round(asked)
    room.clock.advance(3_600_000)
    assert room.next_round(asked) == []
    assert room.bodies(DISCARD) == [b"x"]
    room.close()


def test_without_a_producer_it_is_counted_all_the_same(room: Transacting) -> None:
    room.prepare()
    room.next_round()
    assert room.records(HALF)[-1].properties["TRANSACTION_CHECK_TIMES"] == "1"
    [request] = room.next_round(room.join())
    assert asked_for(room, request).properties["TRANSACTION_CHECK_TIMES"] == "2"


def test_the_producers_of_a_group_are_asked_in_turn(room: Transacting) -> None:
    peers = [room.join() for _ in range(3)]
    stranger = room.join("other")
    for _ in range(9):
        room.prepare()
    room.next_round()
    assert [len(peer.requests) for peer in [*peers, stranger]] == [3, 3, 3, 0]


def test_who_does_not_read_is_not_asked(room: Transacting) -> None:
    deaf, living = room.join(), room.join()
    deaf.congested = True
    for _ in range(4):
        room.prepare()
    room.next_round()
    assert (len(deaf.requests), len(living.requests)) == (0, 4)


def test_an_immune_one_is_put_again_and_not_asked_for(room: Transacting) -> None:
    asked = room.join()
    first = room.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    assert room.next_round(asked) == []
    copy = room.records(HALF)[-1]
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(first.queue_offset)
    room.timers.run(5000)
    room.end(first, COMMIT)
    assert room.next_round(asked) == []
    assert room.bodies("T", 1) == [b"x"]
    assert room.marks() == [b"%d," % copy.queue_offset]


def test_an_immune_one_is_asked_for_afterwards(room: Transacting) -> None:
    asked = room.join()
    room.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    room.next_round(asked)
    [request] = room.next_round(asked)
    room.end(asked_for(room, request), COMMIT, checked=True)
    assert room.bodies("T", 1) == [b"x"]


def test_slices_go_through_many(room: Transacting) -> None:
    asked = room.join()
    for _ in range(100):
        room.prepare()
    assert len(room.next_round(asked)) == 100
    assert len(room.next_round(asked)) == 100
    assert room.offset(HALF) == 200


def test_a_resumed_one_is_asked_for_again(tmp_path: Path) -> None:
    room = Transacting(tmp_path, transaction_check_max=1)
    asked = room.join()
    room.prepare(b"late")
    room.next_round()
    room.next_round()
    [discarded] = room.records(DISCARD)
    ext = {"msgId": offset_id(HOST, discarded.physical_offset)}
    room.routes[323](RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext), room.peer)
    room.timers.run()
    assert [answer.code for answer in room.peer.replies] == [0]
    [request] = room.next_round(asked)
    room.end(asked_for(room, request), COMMIT, checked=True)
    assert room.bodies("T", 1) == [b"late"]


@pytest.mark.parametrize("message_id", ["", "x", "0" * 32, "F" * 32])
def test_only_what_was_discarded_is_resumed(room: Transacting, message_id: str) -> None:
    room.prepare()
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
    with pytest.raises(Refusal, match="Exception was thrown"):
        room.routes[323](request, room.peer)
    assert len(room.records(HALF)) == 1
