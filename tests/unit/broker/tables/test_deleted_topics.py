"""DeletedTopics: what is kept of deleted queues, its bounds and its file."""

import json

import pytest

from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.support.clock import ManualClock

CLOCK = ManualClock()


def table(topics_max: int = 10, offsets_max: int = 10) -> tuple[DeletedTopics, ConsumerOffsets]:
    offsets = ConsumerOffsets(CLOCK)
    return (
        DeletedTopics(offsets, ClientTable(CLOCK), CLOCK, topics_max=topics_max, offsets_max=offsets_max),
        offsets,
    )


def test_the_file_is_read_again_in_its_order() -> None:
    deleted, offsets = table()
    offsets.note_pull("G", "Z", 1, 7)
    deleted.note("Z", {0: 3, 1: 9}, 100)
    offsets.remove_topic("Z")
    deleted.note("A", {0: 2}, 100)
    again, _ = table(topics_max=1)
    again.load(deleted.to_json())
    assert "A" in again, "the topic that was deleted last is kept"
    assert "Z" not in again
    again, _ = table()
    again.load(deleted.to_json())
    assert again.is_old("G", "Z", 1, 7, 0, 8), "pulled exactly there"
    assert not again.is_old("H", "Z", 1, 7, 0, 8)
    assert again.is_old("H", "Z", 1, 9, 0, 8), "past the end, and the deleted queue had it"
    assert not again.is_old("H", "Z", 1, 10, 0, 8)


def test_a_topic_deleted_twice_keeps_the_higher_end() -> None:
    deleted, _ = table()
    deleted.note("T", {0: 9, 1: 1}, 100)
    deleted.note("T", {0: 2, 1: 5}, 100)
    assert [deleted.is_old("G", "T", queue, 5, 0, 3) for queue in (0, 1)] == [True, True]
    assert not deleted.is_old("G", "T", 1, 6, 0, 3)
    assert len(deleted) == 1


def test_records_from_before_the_deletion_are_known() -> None:
    deleted, _ = table()
    deleted.note("T", {0: 9}, 100)
    now_ms = CLOCK.now_ms()
    assert deleted.is_deleted("T", 99, now_ms)
    assert not deleted.is_deleted("T", 100, now_ms), "stored after it"
    assert not deleted.is_deleted("T", 99, now_ms + 1), "a power cut took the end of the log"
    assert not deleted.is_deleted("U", 99, now_ms)


def test_records_stored_where_the_log_was_cut_are_not_of_the_deleted_topic() -> None:
    """After a power cut with a clock that was set back, or of a master that was promoted before the deletion."""
    deleted, _ = table()
    deleted.note("T", {0: 9}, 100)
    deleted.note("U", {0: 9}, 40)
    now_ms = CLOCK.now_ms()
    deleted.bound(60)
    assert not deleted.is_deleted("T", 60, now_ms)
    assert deleted.is_deleted("T", 59, now_ms)
    assert [deleted.is_deleted("U", at, now_ms) for at in (39, 40)] == [True, False]


def test_empty_queues_are_not_noted() -> None:
    deleted, _ = table()
    deleted.note("T", {0: 0, 1: -1}, 100)
    deleted.note("U", {}, 100)
    assert len(deleted) == 0


def test_topics_and_offsets_are_bounded() -> None:
    deleted, offsets = table(topics_max=2, offsets_max=4)
    for name in ("A", "B", "C"):
        deleted.note(name, {0: 1}, 100)
    assert [name in deleted for name in "ABC"] == [False, True, True]
    deleted.note("D", {0: 1, 1: 1, 2: 1, 3: 1}, 100)
    assert [name in deleted for name in "BCD"] == [False, False, True]
    offsets.note_pull("G", "D", 0, 1)
    deleted.note("D", {0: 1}, 100)
    assert deleted.is_old("G", "D", 3, 1, 0, 0), "what groups pulled is left out first"


@pytest.mark.parametrize(
    "value", [[], {"topics": {}}, {"topics": [{}]}, {"topics": [{"topic": "T", "ends": {"-1": 1}}]}]
)
def test_a_damaged_file_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        table()[0].load(json.dumps(value).encode())
