"""TransactionService after a stop, a kill, or another broker: decided transactions stay decided."""

from pathlib import Path

import pytest

from firearrow._native.store.log.record import decode
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.message import Message
from firearrow.broker.transactions import end_transaction
from tests.support.transaction_harness import COMMIT, GROUP, HALF, OP, ROLLBACK, TransactionHarness, asked_for


def again(harness: TransactionHarness, folder: Path, offsets: bytes | None = None) -> TransactionHarness:
    harness.kill()
    return TransactionHarness(folder, offsets, harness.clock.now_ms())


def test_decisions_survive_a_kill(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path)
    halves = [harness.prepare(b"%d" % number) for number in range(30)]
    for half in halves[:20]:
        harness.end(half, COMMIT if half.queue_offset % 2 else ROLLBACK)
    harness = again(harness, tmp_path)
    for half in halves[:20]:
        answer = harness.end(half, COMMIT)
        assert answer is not None
        assert answer.code == 0
    asked = harness.join()
    requests = harness.next_round(asked)
    assert sorted(int(decode(request.body).body) for request in requests) == list(range(20, 30))
    assert [int(body) for body in harness.bodies("T", 1)] == list(range(1, 20, 2))


def test_after_a_kill_only_one_copy_is_checked(tmp_path: Path) -> None:
    """The offsets file is older than the check."""
    harness = TransactionHarness(tmp_path)
    old = harness.offsets.to_json()
    harness.prepare()
    harness.next_round()
    harness = again(harness, tmp_path, old)
    asked = harness.join()
    [request] = harness.next_round(asked)
    harness.end(asked_for(harness, request), COMMIT, checked=True)
    assert harness.next_round(asked) == []
    assert harness.bodies("T", 1) == [b"x"]


def test_checks_are_counted_across_starts_and_only_those_that_were_sent(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path, transaction_check_max=2)
    harness.prepare(b"waits")
    harness.next_round(harness.join())
    for _ in range(3):  # its producer is away
        harness.kill()
        harness = TransactionHarness(
            tmp_path, harness.offsets.to_json(), harness.clock.now_ms(), transaction_check_max=2
        )
        harness.next_round()
        harness.next_round()
    [request] = harness.next_round(asked := harness.join())
    assert asked_for(harness, request).properties["TRANSACTION_CHECK_TIMES"] == "2"
    assert harness.next_round(asked) == []
    assert harness.bodies("TRANS_CHECK_MAX_TIME_TOPIC") == [b"waits"]
    harness.close()


def test_a_lost_op_message_is_written_at_start(tmp_path: Path) -> None:
    """The write was torn between the final message and its op message."""
    harness = TransactionHarness(tmp_path)
    half = harness.prepare()
    message = Message("T", 1, b"x", sys_flag=8)
    placed = harness.appender.put(message, hooks=False)
    harness.journal.note(Kind.DECIDED, "", 0, half.queue_offset, placed.end)
    harness.timers.run()
    assert harness.marks() == []
    harness = again(harness, tmp_path)
    harness.timers.run()
    assert harness.marks() == [b"0,"]
    assert harness.next_round(harness.join()) == []
    assert len(harness.records(HALF)) == 1


def test_a_commit_that_the_log_lacks_is_void(tmp_path: Path) -> None:
    harness = TransactionHarness(tmp_path)
    half = harness.prepare()
    harness.decide(half, COMMIT)
    harness = again(harness, tmp_path)
    harness.timers.run()
    assert (harness.bodies("T", 1), harness.marks()) == ([], [])
    [_] = harness.next_round(harness.join())


def test_apaches_offsets_and_op_messages_are_continued(tmp_path: Path) -> None:
    """An op message with several offsets, some below the group's offset; a copy whose first offset was ended."""
    harness = TransactionHarness(tmp_path)
    for _ in range(6):
        harness.prepare()
    harness.put(HALF, b"copy", PGROUP="PG", REAL_TOPIC="T", REAL_QID="1", TRAN_PREPARED_QUEUE_OFFSET="1")
    harness.put(OP, b"0,1,4,", TAGS="d")
    harness.put(OP, b"5", TAGS="d")
    harness.put(OP, b"3,", TAGS="other")
    harness.timers.run()
    harness.offsets.commit(GROUP, HALF, 0, 2)
    harness.kill()
    harness = TransactionHarness(tmp_path, harness.offsets.to_json(), harness.clock.now_ms())
    asked = harness.join()
    requests = harness.next_round(asked)
    assert [asked_for(harness, request).queue_offset for request in requests] == [7, 8]
    assert harness.marks()[-1] == b"6,"
    harness.next_round()
    assert [half.body for half in harness.records(HALF)] == [b"x"] * 6 + [b"copy"] + [b"x"] * 4
    assert harness.offset(HALF) == 9


@pytest.mark.parametrize(
    ("last", "marks"), [(b"0", [b"0", b"1", b"2", b"3"]), (b"0,", [b"0,", b"1,2,3,"])], ids=["4", "5"]
)
def test_op_messages_have_the_form_of_the_previous_broker(
    tmp_path: Path, last: bytes, marks: list[bytes]
) -> None:
    """Apache 4 ignores an op message with more than one offset, and would check what was decided."""
    harness = TransactionHarness(tmp_path)
    halves = [harness.prepare() for _ in range(4)]
    harness.put(OP, last, TAGS="d")
    harness.timers.run()
    harness = again(harness, tmp_path)
    for half in halves[1:]:
        harness.decide(half, ROLLBACK)
    harness.timers.run()
    assert harness.marks() == marks
    assert harness.offset(HALF) == 4


def started_again(harness: TransactionHarness, folder: Path, how: str) -> TransactionHarness:
    """`killed`: the offsets of its journal count; `stopped`: those of the file."""
    now_ms = harness.clock.now_ms()
    if how == "killed":
        return again(harness, folder)
    harness.service.stop()
    harness.timers.run()
    offsets = harness.offsets.to_json()
    harness.close()
    return TransactionHarness(folder, offsets, now_ms)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_waits_before_a_copy_is_neither_lost_nor_repeated(tmp_path: Path, how: str) -> None:
    """The second half message is checked, which copies it; the first is immune, and the third is decided meanwhile."""
    harness = TransactionHarness(tmp_path)
    immune = harness.prepare(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    harness.prepare(b"checked")
    decided = harness.prepare(b"decided", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    [request] = harness.next_round(harness.join())
    assert decode(request.body).body == b"checked"
    harness.end(decided, COMMIT)
    harness = started_again(harness, tmp_path, how)
    [request] = harness.next_round(asked := harness.join())
    copy = asked_for(harness, request)
    assert (copy.body, copy.properties["TRANSACTION_CHECK_TIMES"]) == (b"checked", "2")
    harness.end(copy, COMMIT, checked=True)
    harness.end(immune, COMMIT)
    assert harness.next_round(asked) == []
    assert sorted(harness.bodies("T", 1)) == [b"checked", b"decided", b"immune"]
    harness = started_again(harness, tmp_path, how)
    assert harness.next_round(harness.join()) == []
    assert harness.service.open_count() == 0
    harness.close()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_producer_may_name_a_message_that_was_copied_before_the_start(tmp_path: Path, how: str) -> None:
    """As the one that got no check, or has not answered it."""
    harness = TransactionHarness(tmp_path)
    harness.prepare(b"other", UNIQ_KEY="V")
    first = harness.prepare(b"x")
    asked = harness.join()
    for _ in range(2):
        requests = harness.next_round(asked)
    second = asked_for(harness, requests[1])
    harness = started_again(harness, tmp_path, how)
    for half in (first, second, first):
        answer = harness.end(half, COMMIT)
        assert (answer is not None and answer.code, harness.bodies("T", 1)) == (0, [b"x"])
    [request] = harness.next_round(harness.join())
    assert asked_for(harness, request).body == b"other"
    harness.close()


def test_not_all_open_messages_are_read_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision for one of the others is answered, and its producer is asked again."""
    monkeypatch.setattr(end_transaction, "READ_MAX", 2)
    harness = TransactionHarness(tmp_path)
    halves = [harness.prepare(b"%d" % number, UNIQ_KEY=f"U{number}") for number in range(3)]
    harness.next_round(harness.join())
    harness = again(harness, tmp_path)
    for half in halves:
        assert harness.end(half, COMMIT).code == 0  # type: ignore[union-attr]
    assert sorted(harness.bodies("T", 1)) == [b"0", b"1"]
    [request] = harness.next_round(harness.join())
    assert asked_for(harness, request).body == b"2"
