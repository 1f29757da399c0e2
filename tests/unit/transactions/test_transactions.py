"""TransactionService with a manual clock: decisions, checks, discards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.record import decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message_ids import offset_id
from tests.support.harness import HOST
from tests.support.transaction_harness import (
    COMMIT,
    DISCARD,
    HALF,
    OP,
    ROLLBACK,
    ROUND_MS,
    TIMEOUT_MS,
    UNKNOWN,
    TransactionHarness,
    asked_for,
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TransactionHarness]:
    harness = TransactionHarness(tmp_path)
    yield harness
    harness.close()


# ---- decisions ----


def test_a_commit_is_visible_once_and_its_op_message_is_in_the_same_batch(
    harness: TransactionHarness,
) -> None:
    half = harness.prepare(b"paid")
    assert harness.bodies("T", 1) == []
    answer = harness.end(half, COMMIT)
    assert answer is not None
    assert answer.code == 0
    [final] = harness.records("T", 1)
    assert (final.body, final.prepared_offset, final.sys_flag & 0xC) == (b"paid", half.physical_offset, 8)
    [mark] = harness.records(OP)
    assert (mark.body, mark.properties) == (b"0,", {"WAIT": "true", "TAGS": "d"})


def test_a_rollback_is_never_visible(harness: TransactionHarness) -> None:
    half = harness.prepare()
    answer = harness.end(half, ROLLBACK)
    assert answer is not None
    assert answer.code == 0
    assert harness.bodies("T", 1) == []
    assert harness.marks() == [b"0,"]


def test_unknown_changes_nothing(harness: TransactionHarness) -> None:
    answer = harness.end(harness.prepare(), UNKNOWN)
    assert answer is not None
    assert answer.code == 0
    assert (harness.bodies("T", 1), harness.marks()) == ([], [])


@pytest.mark.parametrize("what", [4, 1, -8])
def test_invalid_decisions_are_refused(harness: TransactionHarness, what: int) -> None:
    half = harness.prepare()
    with pytest.raises(Refusal, match="commitOrRollback"):
        harness.end(half, what)
    assert (harness.bodies("T", 1), harness.marks()) == ([], [])


@pytest.mark.parametrize(("first", "second"), [(8, 8), (8, 12), (12, 8), (12, 12)])
@pytest.mark.parametrize("same_turn", [True, False])
def test_the_first_decision_counts(
    harness: TransactionHarness, first: int, second: int, same_turn: bool
) -> None:
    half = harness.prepare()
    harness.decide(half, first)
    if not same_turn:
        harness.timers.run()
    harness.decide(half, second)
    harness.timers.run()
    assert [answer.code for answer in harness.peer.replies] == [0, 0]
    assert harness.bodies("T", 1) == ([b"x"] if first == COMMIT else [])
    assert harness.marks() == [b"0,"]


def test_decisions_of_a_batch_share_an_op_message(harness: TransactionHarness) -> None:
    halves = [harness.prepare(b"%d" % number) for number in range(20)]
    for half in halves:
        harness.decide(half, COMMIT if half.queue_offset % 2 else ROLLBACK)
    harness.timers.run()
    assert harness.marks() == [b"".join(b"%d," % number for number in range(20))]
    assert [int(body) for body in harness.bodies("T", 1)] == list(range(1, 20, 2))
    assert len(harness.peer.replies) == 20


def test_op_messages_are_bounded(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, transaction_op_bytes=5)
    halves = [harness.prepare() for _ in range(7)]
    for half in halves:
        harness.decide(half, ROLLBACK)
    harness.timers.run()
    assert harness.marks() == [b"0,1,2,", b"3,4,5,", b"6,"]


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
    harness: TransactionHarness, fields: dict[str, object], remark: str
) -> None:
    half = harness.prepare()
    with pytest.raises(Refusal, match=remark) as refusal:
        harness.end(half, COMMIT, **fields)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert (harness.bodies("T", 1), harness.marks()) == ([], [])


def test_only_half_messages_can_be_committed(harness: TransactionHarness) -> None:
    harness.put("T", b"plain", 1, PGROUP="PG", REAL_TOPIC="T", REAL_QID="1")
    harness.timers.run()
    [plain] = harness.records("T", 1)
    with pytest.raises(Refusal, match="Find prepared"):
        harness.end(plain, COMMIT)


def test_a_late_decision_with_an_immunity_waits_for_the_check(harness: TransactionHarness) -> None:
    half = harness.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    harness.clock.advance(10_001)
    with pytest.raises(Refusal) as refusal:
        harness.end(half, COMMIT)
    assert refusal.value.code == ResponseCode.ILLEGAL_OPERATION
    answer = harness.end(half, COMMIT, checked=True)
    assert answer is not None
    assert harness.bodies("T", 1) == [b"x"]


def test_a_delayed_transaction_is_delayed_once_it_is_committed(harness: TransactionHarness) -> None:
    half = harness.prepare(DELAY="2")
    assert harness.records("SCHEDULE_TOPIC_XXXX", 1) == []
    harness.end(half, COMMIT)
    [scheduled] = harness.records("SCHEDULE_TOPIC_XXXX", 1)
    assert (scheduled.properties["REAL_TOPIC"], scheduled.properties["REAL_QID"]) == ("T", "1")
    assert "TRAN_MSG" not in scheduled.properties


def test_transactions_can_be_forbidden(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, reject_transactions=True)
    with pytest.raises(Refusal, match="sending transaction message is forbidden") as refusal:
        harness.prepare()
    assert refusal.value.code == ResponseCode.NO_PERMISSION


def test_pending_half_messages_are_bounded(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, halves_max=3)
    halves = [harness.prepare() for _ in range(3)]
    with pytest.raises(Refusal, match="at most 3"):
        harness.prepare()
    harness.end(halves[0], ROLLBACK)
    assert harness.prepare().queue_offset == 3


# ---- checks ----


def test_an_open_transaction_is_checked_and_the_response_counts(harness: TransactionHarness) -> None:
    asked = harness.join()
    first = harness.prepare(b"when asked")
    [request] = harness.next_round(asked)
    copy = asked_for(harness, request)
    assert copy.queue_offset == first.queue_offset + 1
    assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert decode(request.body).properties == copy.properties | {"WAIT": "false"}
    harness.end(copy, COMMIT, checked=True)
    assert harness.bodies("T", 1) == [b"when asked"]
    assert (harness.offset(HALF), harness.offset(OP)) == (2, 1)
    assert harness.next_round(asked) == []


@pytest.mark.parametrize("late", [COMMIT, ROLLBACK])
def test_a_late_decision_ends_the_copy(harness: TransactionHarness, late: int) -> None:
    """It names the first copy, after two checks."""
    asked = harness.join()
    first = harness.prepare()
    harness.next_round(asked)
    [request] = harness.next_round(asked)
    harness.end(first, late)
    harness.end(asked_for(harness, request), COMMIT, checked=True)
    assert harness.bodies("T", 1) == ([b"x"] if late == COMMIT else [])
    assert harness.next_round(asked) == []


def test_young_and_decided_transactions_are_not_checked(harness: TransactionHarness) -> None:
    asked = harness.join()
    harness.end(harness.prepare(), COMMIT)
    harness.end(harness.prepare(), ROLLBACK)
    harness.timers.run(ROUND_MS - TIMEOUT_MS)
    harness.prepare()
    harness.timers.run(TIMEOUT_MS)
    assert asked.requests == []
    assert len(harness.records(HALF)) == 3
    [_] = harness.next_round(asked)


def test_after_enough_checks_it_is_discarded(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, transaction_check_max=3)
    asked = harness.join()
    harness.prepare(b"forgotten")
    counts = [len(harness.next_round(asked)) for _ in range(6)]
    assert counts == [1, 1, 1, 0, 0, 0]
    [discarded] = harness.records(DISCARD)
    assert (discarded.body, discarded.properties["TRANSACTION_CHECK_TIMES"]) == (b"forgotten", "3")
    topic = harness.topics.get(DISCARD)
    assert topic is not None
    assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)
    assert len(harness.records(HALF)) == 4
    assert harness.offset(HALF) == 4


def test_three_days_are_too_old(harness: TransactionHarness) -> None:
    asked = harness.join()
    harness.prepare()
    harness.clock.advance(72 * 3_600_000 + 1)
    assert harness.next_round(asked) == []
    assert harness.bodies(DISCARD) == [b"x"]
    assert harness.given_up() == {("T", "age"): 1}


def test_a_longer_retention_allows_longer_checks(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, reserved_hours=100)
    asked = harness.join()
    harness.prepare()
    harness.clock.advance(99 * 3_600_000)
    assert harness.next_round(asked)
    harness.clock.advance(3_600_000)
    assert harness.next_round(asked) == []
    assert harness.bodies(DISCARD) == [b"x"]
    harness.close()


def test_checks_that_were_never_sent_use_up_nothing(tmp_path: Path) -> None:
    """No producer, one that does not read, one that has just closed: the transaction waits where it is."""
    harness = TransactionHarness(tmp_path, transaction_check_max=2)
    half = harness.prepare(b"waits")
    for _ in range(4):
        harness.next_round()
    frozen = harness.join()
    frozen.write_paused = True
    for _ in range(4):
        assert harness.next_round(frozen) == []
    frozen.closed = True
    assert harness.next_round(frozen) == []
    assert [record.queue_offset for record in harness.records(HALF)] == [half.queue_offset]
    frozen.closed = frozen.write_paused = False
    assert [len(harness.next_round(frozen)) for _ in range(3)] == [1, 1, 0]
    assert harness.bodies(DISCARD) == [b"waits"]
    assert harness.given_up() == {("T", "checks"): 1}
    harness.close()


def test_a_producer_that_leaves_while_the_check_is_stored_was_not_asked(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, transaction_check_max=1)
    leaving = harness.join()
    harness.prepare(b"waits")
    oneway = leaving.oneway
    leaving.oneway = lambda command: (oneway(command), leaving.close())  # type: ignore[method-assign,assignment]
    [_] = harness.next_round(leaving)
    assert harness.bodies(DISCARD) == []
    leaving.oneway, leaving.closed = oneway, False  # type: ignore[method-assign]
    [request] = harness.next_round(leaving)
    assert asked_for(harness, request).properties["TRANSACTION_CHECK_TIMES"] == "1"
    harness.next_round(leaving)
    assert harness.bodies(DISCARD) == [b"waits"]
    harness.close()


def test_what_waits_long_is_copied_uncounted(harness: TransactionHarness) -> None:
    """Else it would hold back the progress of the queue, and its log file would be deleted before its time."""
    half = harness.prepare()
    for _ in range(121):
        harness.next_round()
    copies = harness.records(HALF)
    assert [copy.queue_offset for copy in copies] == [half.queue_offset, half.queue_offset + 1]
    assert "TRANSACTION_CHECK_TIMES" not in copies[1].properties
    assert harness.offset(HALF) == half.queue_offset + 1
    harness.end(half, COMMIT)
    assert harness.bodies("T", 1) == [b"x"]
    assert harness.marks() == [b"%d," % copies[1].queue_offset]


def test_many_messages_after_one_that_waits_do_not_wait_with_it(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, halves_max=8)
    asked = harness.join("other")
    harness.prepare(b"waits")
    for _ in range(6):
        harness.end(harness.prepare(PGROUP="other"), ROLLBACK, producerGroup="other")
    assert harness.next_round(asked) == []
    assert harness.offset(HALF) == 7
    for _ in range(7):
        harness.prepare(PGROUP="other")
    harness.close()


def test_many_that_wait_are_not_copied_each_round(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, halves_max=8)
    asked = harness.join("other")
    for _ in range(7):
        harness.prepare()
    for _ in range(3):
        assert harness.next_round(asked) == []
    assert len(harness.records(HALF)) == 7
    harness.close()


def test_the_producers_of_a_group_are_checked_in_turn(harness: TransactionHarness) -> None:
    peers = [harness.join() for _ in range(3)]
    stranger = harness.join("other")
    for _ in range(9):
        harness.prepare()
    harness.next_round()
    assert [len(peer.requests) for peer in [*peers, stranger]] == [3, 3, 3, 0]


def test_producers_that_do_not_read_get_no_checks(harness: TransactionHarness) -> None:
    deaf, living = harness.join(), harness.join()
    deaf.write_paused = True
    for _ in range(4):
        harness.prepare()
    harness.next_round()
    assert (len(deaf.requests), len(living.requests)) == (0, 4)


def test_an_immune_transaction_waits_uncounted(tmp_path: Path) -> None:
    """Longer than transactionCheckMax rounds."""
    harness = TransactionHarness(tmp_path, transaction_check_max=2)
    asked = harness.join()
    first = harness.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="200")
    young = harness.prepare()
    assert [len(harness.next_round(asked)) for _ in range(6)] == [1, 1, 0, 0, 0, 0]
    assert [record.queue_offset for record in harness.records(DISCARD)] == [0]
    [request] = harness.next_round(asked)
    copy = asked_for(harness, request)
    assert (copy.properties["TRANSACTION_CHECK_TIMES"], young.queue_offset) == ("1", 1)
    harness.end(first, COMMIT, checked=True)
    assert harness.next_round(asked) == []
    assert harness.bodies("T", 1) == [b"x"]
    assert harness.marks() == [b"1,", b"2,", b"3,", b"%d," % copy.queue_offset], (
        "moved past the one that waits"
    )
    harness.close()


@pytest.mark.parametrize("properties", [{"CHECK_IMMUNITY_TIME_IN_SECONDS": "9999999999"}, {"PGROUP": "away"}])
def test_one_born_far_in_the_future_does_not_wait_for_ever(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    """It would never be older than fileReservedTime."""
    harness = TransactionHarness(tmp_path, transaction_check_max=2)
    harness.prepare(ahead_ms=365 * 86_400_000, **properties)
    for _ in range(4):
        harness.next_round()
    assert len(harness.records(DISCARD)) == 1
    harness.close()


def test_an_immune_transaction_is_checked_afterwards(harness: TransactionHarness) -> None:
    asked = harness.join()
    harness.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    harness.next_round(asked)
    [request] = harness.next_round(asked)
    harness.end(asked_for(harness, request), COMMIT, checked=True)
    assert harness.bodies("T", 1) == [b"x"]


def test_many_are_checked_in_slices(harness: TransactionHarness) -> None:
    asked = harness.join()
    for _ in range(100):
        harness.prepare()
    assert len(harness.next_round(asked)) == 100
    assert len(harness.next_round(asked)) == 100
    assert harness.offset(HALF) == 200


def test_a_resumed_transaction_is_checked_again(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, transaction_check_max=1)
    asked = harness.join()
    harness.prepare(b"late")
    harness.next_round(asked)
    harness.next_round(asked)
    [discarded] = harness.records(DISCARD)
    ext = {"msgId": offset_id(HOST, discarded.physical_offset)}
    harness.routes[323](RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext), harness.peer)
    harness.timers.run()
    assert [answer.code for answer in harness.peer.replies] == [0]
    [request] = harness.next_round(asked)
    harness.end(asked_for(harness, request), COMMIT, checked=True)
    assert harness.bodies("T", 1) == [b"late"]


@pytest.mark.parametrize("message_id", ["", "x", "0" * 32, "F" * 32])
def test_only_discarded_transactions_are_resumed(harness: TransactionHarness, message_id: str) -> None:
    harness.prepare()
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
    with pytest.raises(Refusal, match="Exception was thrown"):
        harness.routes[323](request, harness.peer)
    assert len(harness.records(HALF)) == 1
