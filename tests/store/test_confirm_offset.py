"""A store whose readers wait for copies: what was not confirmed before a stop or a kill stays hidden after it."""

import random
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from firearrow._native.replication.follower import Follower, RecordDoubted
from firearrow._native.store.confirm_offset import FILE_NAME, OFFSET, remove_confirm_offset
from firearrow._native.store.message_store import GetStatus, MessageStore, StoreConfig
from tests.faults.small_disk import SmallDisk
from tests.support.stores import put

CONFIG = StoreConfig(
    segment_bytes=1 << 14, queue_file_bytes=400, index_slots=100, index_entries=400, confirm_later=True
)
QUEUES = 3


def filled(root: Path, count: int = 60) -> tuple[MessageStore, list[tuple[int, int]]]:
    """And the queue and the end of each record."""
    store = MessageStore.open(root, CONFIG)
    draw, records = random.Random(7), []
    for number in range(count):
        queue_id = draw.randrange(QUEUES)
        records.append((queue_id, put(store, b"%d" % number * draw.randrange(1, 200), queue_id=queue_id).end))
        if draw.random() < 0.5:
            store.write()
    store.write()
    return store, records


def visible(store: MessageStore) -> list[int]:
    return [store.reader.max_offset("T", queue_id) for queue_id in range(QUEUES)]


def ends(records: list[tuple[int, int]], confirmed: int) -> list[int]:
    return [sum(each == queue_id and end <= confirmed for each, end in records) for queue_id in range(QUEUES)]


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 29, 58, 60])
@pytest.mark.parametrize("inside", [0, 1])
def test_the_next_open_hides_what_was_not_confirmed(
    tmp_path: Path, killed: bool, kept: int, inside: int
) -> None:
    """`inside`: a slave may have acknowledged a part of the next record."""
    store, records = filled(tmp_path)
    confirmed = (records[kept - 1][1] if kept else 0) + (inside if kept < len(records) else 0)
    store.confirm(confirmed)
    before = visible(store)
    assert before == ends(records, confirmed)
    store.abandon() if killed else store.close()
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert visible(store) == before
        assert store.reader.confirmed == confirmed
        assert {number for _, number in store.hidden_queues()} == {
            number for number, end in records if end > confirmed
        }
        for _, end in records[kept:]:
            store.confirm(end)
            assert visible(store) == ends(records, end)
        assert store.hidden_queues() == []


def test_a_reader_past_what_is_visible_waits_and_is_not_moved(tmp_path: Path) -> None:
    """It saw these messages before a power cut, or at the master."""
    store, records = filled(tmp_path)
    store.confirm(records[20][1])
    store.abandon()
    with MessageStore.open(tmp_path, CONFIG) as store:
        shown, last = visible(store)[0], ends(records, store.written)[0]
        for offset in range(shown, last + 1):
            assert store.reader.get("T", 0, offset, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.reader.get("T", 0, last + 1, 32).status is GetStatus.OFFSET_OVERFLOW_BADLY


def test_of_a_queue_that_is_hidden_as_a_whole_too(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    store.abandon()
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert visible(store) == [0] * QUEUES
        assert (store.records_end("T"), store.records_end("U")) == (store.written, 0)
        assert store.reader.get("T", 0, 3, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.reader.get("T", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_services_see_the_whole_log_while_they_start(tmp_path: Path) -> None:
    store, records = filled(tmp_path)
    store.confirm(records[20][1])
    store.abandon()
    with MessageStore.open(tmp_path, CONFIG) as store:
        before = visible(store)
        with store.whole_log_visible():
            assert visible(store) == ends(records, store.written)
            records.append((1, put(store, b"while they start", queue_id=1).end))
            store.write()
        assert visible(store) == before
        store.confirm(store.written)
        assert visible(store) == ends(records, store.written)
        with store.whole_log_visible():
            pass
        assert visible(store) == ends(records, store.written)


def test_messages_that_come_later_wait_with_what_is_hidden(tmp_path: Path) -> None:
    store, records = filled(tmp_path)
    store.confirm(records[20][1])
    store.abandon()
    with MessageStore.open(tmp_path, CONFIG) as store:
        records.append((0, put(store, b"later", queue_id=0).end))
        store.write()
        assert visible(store) == ends(records, records[20][1])
        store.confirm(records[40][1])
        assert visible(store) == ends(records, records[40][1])
        assert store.drop_topic("T") == QUEUES
        store.confirm(store.written)
        assert visible(store) == [0] * QUEUES


@pytest.mark.parametrize("noted", [b"", b"abc", OFFSET.pack(1 << 40), bytes(9)])
def test_a_file_that_says_nothing_hides_nothing(tmp_path: Path, noted: bytes) -> None:
    store, records = filled(tmp_path)
    store.abandon()
    (tmp_path / FILE_NAME).write_bytes(noted)
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert visible(store) == ends(records, store.written)


def test_a_full_disk_at_the_first_start_hides_nothing_later(tmp_path: Path) -> None:
    """The file that could not be written must not say that nothing was confirmed."""
    with SmallDisk(tmp_path, mib=4, kind="tmpfs") as disk:
        filled(disk.store)[0].close()
        (disk.store / FILE_NAME).unlink()
        disk.fill()
        for _ in range(2):
            with pytest.raises(OSError, match="No space left on device"):
                MessageStore.open(disk.store, CONFIG)
        disk.free_space()
        with MessageStore.open(disk.store, CONFIG) as store:
            assert store.reader.confirmed == store.written > 0
            assert store.hidden_queues() == []


def test_an_offset_below_zero_hides_all(tmp_path: Path) -> None:
    filled(tmp_path)[0].abandon()
    (tmp_path / FILE_NAME).write_bytes(OFFSET.pack(-1))
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert visible(store) == [0] * QUEUES


def test_without_copies_to_wait_for_there_is_no_file(tmp_path: Path) -> None:
    filled(tmp_path)[0].close()
    assert (tmp_path / FILE_NAME).stat().st_size == OFFSET.size
    remove_confirm_offset(str(tmp_path))
    remove_confirm_offset(str(tmp_path))
    assert not (tmp_path / FILE_NAME).exists()


def receive(store: MessageStore, at: int, data: bytes) -> None:
    """A piece of a master's log. A record that does not continue its queue has to come twice."""
    follower, piece = Follower(store), struct.pack(">qi", at, len(data)) + data
    for _ in range(2):
        follower.begin(0, 0)
        follower.wire[: len(piece)] = piece
        follower.received(len(piece))
        with suppress(RecordDoubted):
            follower.append()
            break
    store.write()


def test_entries_of_lost_messages_are_truncated_with_the_record_after_them(tmp_path: Path) -> None:
    """Else the queue would end with them: what is before them would not be hidden, and the log's next record would
    not continue the queue."""
    with MessageStore.open(tmp_path / "master", CONFIG) as master:
        for _ in range(20):
            put(master, b"other", queue_id=1)
        ends = [put(master, b"kept").end for _ in range(3)]
        put(master, b"after three that were lost")
        master.write()
        log = bytearray(master.log_bytes(0, master.written) or b"")
    whole, at = bytes(log), ends[-1]
    struct.pack_into(">q", log, at + 20, 6)
    store = MessageStore.open(tmp_path / "slave", CONFIG)
    receive(store, 0, log[:at])
    receive(store, at, log[at:])
    assert store.next_offset("T", 0) == 7
    store.confirm(ends[0])
    store.close()
    with MessageStore.open(tmp_path / "slave", replace(CONFIG, truncate_at=at)) as store:
        assert (store.reader.max_offset("T", 0), store.next_offset("T", 0)) == (1, 3)
        receive(store, at, whole[at:])
        store.confirm(store.written)
        assert (store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)) == (0, 4)
