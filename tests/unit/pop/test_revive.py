"""ReviveService with a manual clock: what is revived, when, into which topic, and that a kill repeats nothing."""

from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record
from firearrow.broker.pop.checkpoints import PopCheckPoint
from firearrow.broker.pop.revive import GROUP
from tests.pop.revive_harness import INVISIBLE_MS, RETRY, REVIVE, ReviveHarness, filled


@pytest.fixture
def harness(tmp_path: Path) -> ReviveHarness:
    return ReviveHarness(tmp_path)


def test_unacknowledged_messages_are_revived(harness: ReviveHarness) -> None:
    filled(harness, 3)
    pop_ms = harness.clock.now_ms()
    point = harness.pop(0, 1, 2)
    harness.ack(point, 1)
    harness.timers.run(INVISIBLE_MS)
    assert harness.revived() == []
    harness.timers.run(4000)
    assert harness.revived() == [b"0", b"2"]
    record: Record = harness.records(RETRY)[0]
    assert record.reconsume_times == 1
    assert record.properties == {
        "KEYS": "k0",
        "TAGS": "t",
        "1ST_POP_TIME": str(pop_ms),
        "ORIGIN_GROUP": "G",
    }
    assert harness.offsets.committed("G", RETRY, 0) == 0
    assert harness.offsets.committed(GROUP, REVIVE, 0) == 0


def test_a_revived_message_names_no_topic_that_its_sender_chose(harness: ReviveHarness) -> None:
    harness.put("T", b"0", RETRY_TOPIC="secret")
    harness.timers.run()
    harness.pop(0)
    harness.timers.run(14_000)
    assert "RETRY_TOPIC" not in harness.records(RETRY)[0].properties


def test_all_acknowledged_at_once(harness: ReviveHarness) -> None:
    filled(harness, 3)
    harness.ack(harness.pop(0, 1, 2), 0, 1, 2)
    harness.timers.run(20_000)
    assert RETRY not in harness.topics
    assert harness.offsets.committed(GROUP, REVIVE, 0) == 0


def test_a_message_that_is_hidden_for_longer_in_the_millisecond_of_its_pop_is_revived(
    harness: ReviveHarness,
) -> None:
    """Its first check point is acknowledged; the second one is told apart by its time."""
    filled(harness, 1)
    harness.change_invisible(harness.pop(0), 0, 2 * INVISIBLE_MS)
    harness.timers.run(INVISIBLE_MS + 4000)
    assert harness.revived() == []
    harness.timers.run(INVISIBLE_MS)
    assert harness.revived() == [b"0"]


def test_revive_waits_for_a_late_timer(harness: ReviveHarness) -> None:
    filled(harness, 1)
    harness.behind = True
    harness.pop(0)
    harness.timers.run(60_000)
    assert harness.revived() == []
    harness.behind = False
    harness.timers.run(2000)
    assert harness.revived() == [b"0"]


def test_what_the_timer_delivers_ends_the_wait(harness: ReviveHarness) -> None:
    filled(harness, 2)
    harness.behind = True
    harness.pop(0)
    harness.clock.advance(4000)
    harness.pop(1, by_timer=True)
    harness.timers.run(1000)
    assert harness.revived() == [b"0"]


def test_what_was_due_at_once_does_not_overtake_acknowledgements_in_a_late_timer(
    harness: ReviveHarness,
) -> None:
    """After a restart: the first check point is long due, and the timer still has its acknowledgement."""
    filled(harness, 2)
    point = harness.pop(0)
    harness.behind = True
    harness.clock.advance(60_000)
    harness.pop(1)
    harness.timers.run(1000)
    assert harness.revived() == []
    harness.ack(point, 0)
    harness.behind = False
    harness.timers.run(20_000)
    assert harness.revived() == [b"1"]


def test_a_message_of_the_retry_topic_stays_there_and_counts(harness: ReviveHarness) -> None:
    filled(harness, 1)
    harness.pop(0)
    harness.timers.run(14_000)
    first_ms = harness.records(RETRY)[0].properties["1ST_POP_TIME"]
    harness.pop(0, topic=RETRY)
    harness.timers.run(14_000)
    _, again = harness.records(RETRY)
    assert (again.reconsume_times, again.properties["1ST_POP_TIME"]) == (2, first_ms)


def test_suspended_messages_do_not_count(harness: ReviveHarness) -> None:
    filled(harness, 1)
    point = PopCheckPoint("T", "G", 0, 0, harness.clock.now_ms(), INVISIBLE_MS, [0], "b", suspend=True)
    harness.appender.put(point.message(REVIVE, 0, harness.clock.now_ms()), hooks=False)
    harness.timers.run(14_000)
    assert harness.records(RETRY)[0].reconsume_times == 0


@pytest.mark.parametrize(("topic", "group"), [("Gone", "G"), ("T", "no/such/group")])
def test_without_topic_or_group_nothing_is_revived(harness: ReviveHarness, topic: str, group: str) -> None:
    filled(harness, 1)
    harness.pop(0, topic=topic, group=group)
    harness.timers.run(20_000)
    assert [name for name in harness.topics if name.startswith("%RETRY%")] == []
    assert harness.offsets.committed(GROUP, REVIVE, 0) == 0


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"t":1}', b'{"t":"T","c":"G","d":["x"]}', b'{"t":"T","c":"G","n":9999999}']
)
def test_malformed_check_points_are_skipped(harness: ReviveHarness, body: bytes) -> None:
    filled(harness, 1)
    harness.put(REVIVE, body or b" ", TAGS="ck")
    harness.put(REVIVE, body or b" ", TAGS="ack")
    harness.put(REVIVE, body or b" ", TAGS="bAck")
    harness.pop(0)
    harness.timers.run(20_000)
    assert harness.revived() == [b"0"]


@pytest.mark.parametrize("run_ms", range(10_000, 16_000, 500))
def test_a_kill_at_any_time_repeats_nothing(tmp_path: Path, run_ms: int) -> None:
    harness = ReviveHarness(tmp_path)
    filled(harness, 40)
    old = harness.offsets.to_json()
    points = [harness.pop(*range(at, at + 10)) for at in range(0, 40, 10)]
    for point in points[1:]:
        harness.ack(point, *point.offsets[:9])
    harness.timers.run(run_ms)
    harness.kill()
    harness = ReviveHarness(tmp_path, old, now_ms=harness.clock.now_ms())
    harness.timers.run(20_000)
    assert sorted(map(int, harness.revived())) == [*range(10), 19, 29, 39]


def test_many_at_once_are_revived_in_slices(harness: ReviveHarness) -> None:
    filled(harness, 600)
    for at in range(0, 600, 2):
        harness.pop(at, at + 1)
    harness.timers.run(14_000)
    assert len(harness.revived()) == 600
    assert harness.revive.pending == 0
