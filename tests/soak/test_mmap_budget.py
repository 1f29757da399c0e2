"""Thousands of queues: the number of mapped files is bounded, and unmapped files lose nothing."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from firearrow._native.store.files.mmap_budget import Mappings
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import bodies, open_store, put

QUEUES, AT_MOST = 24, 6


def queue_files_mapped(folder: Path) -> int:
    return Path("/proc/self/maps").read_text().count(f"{folder}/consumequeue/")


def fill(store: MessageStore, rounds: int) -> None:
    for number in range(rounds):
        for queue_id in range(QUEUES):
            put(store, b"%d/%d" % (queue_id, number), queue_id=queue_id)
        store.write()


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    store = open_store(tmp_path, segment_bytes=1 << 20)
    store.mappings.files_max = AT_MOST
    return store


def test_mapped_files_are_bounded(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 25)
    assert 0 < queue_files_mapped(tmp_path) <= AT_MOST
    for queue_id in range(QUEUES):
        assert bodies(store, queue_id=queue_id) == [b"%d/%d" % (queue_id, number) for number in range(25)]
    assert 0 < queue_files_mapped(tmp_path) <= AT_MOST
    assert len(store.mappings) <= AT_MOST
    assert store.mappings.unmapped_count > QUEUES
    store.close()


def test_data_of_an_unmapped_file_survives_a_kill(store: MessageStore, tmp_path: Path) -> None:
    fill(store, 25)
    store.flush_queues()
    fill(store, 5)
    store.abandon()
    with open_store(tmp_path, segment_bytes=1 << 20) as again:
        for queue_id in range(QUEUES):
            assert len(bodies(again, queue_id=queue_id)) == 30


def test_a_reclaimed_page_is_read_alone(store: MessageStore, tmp_path: Path) -> None:
    """`rr`: the mapping is advised for random access."""
    fill(store, 1)
    maps = Path("/proc/self/smaps").read_text().split("\nVmFlags:")
    flags = [
        after.split("\n")[0].split() for of, after in pairwise(maps) if f"{tmp_path}/consumequeue/" in of
    ]
    assert len(flags) == AT_MOST
    assert all("rr" in of_file for of_file in flags)
    store.close()


def test_queues_in_use_keep_their_mapping(store: MessageStore) -> None:
    """One queue is used between any two others: its file is mapped only once."""
    put(store, b"first", "busy")
    store.write()
    for queue_id in range(QUEUES):
        put(store, b"other", queue_id=queue_id)
        store.write()
        assert store.reader.max_offset("busy", 0) == 1
        assert store.reader.get("busy", 0, 0, 1).count == 1
    assert store.mappings.unmapped_count == QUEUES + 1 - AT_MOST
    store.close()


def test_no_descriptor_stays_open_for_a_queue_or_a_full_segment(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 10)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(4):
        fill(store, 10)
        store.sync()
        store.prepare()
    assert len(os.listdir(tmp_path / "commitlog")) > 20
    store.sync()
    assert len(os.listdir("/proc/self/fd")) <= before
    held = len(os.listdir("/proc/self/fd"))
    store.close()
    with open_store(tmp_path) as again:
        assert len(bodies(again, queue_id=3)) == 50
        assert len(os.listdir("/proc/self/fd")) <= held


def test_the_budget_is_half_of_the_system_s_limit() -> None:
    granted = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert Mappings().files_max == min(granted // 2, 32768)
    assert Mappings(5).files_max == 5
