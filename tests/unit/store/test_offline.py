"""Logs and queues read without a store: also while a broker writes, and without changing anything."""

from pathlib import Path

import numpy as np
import pytest

from firearrow._native.store.files.segment import Segment
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.consume_queue import ConsumeQueue
from tests.support.stores import open_store, put


def test_a_log_and_its_queue_are_read_while_a_store_is_open(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(70):
            put(store, b"%d" % number)
        store.write()
        with (
            CommitLog.open_readonly(tmp_path / "commitlog") as log,
            ConsumeQueue.open_readonly(tmp_path / "consumequeue" / "T" / "0") as queue,
        ):
            assert log.written == store.written
            assert [record.body for record in log.records()] == [b"%d" % number for number in range(70)]
            assert len(queue) == 70
            part = [log.record(physical) for physical, _, _ in queue.entries(20, 32)]
            assert [record.body for record in part if record] == [b"%d" % number for number in range(20, 52)]
            assert log.record(1) is None


def test_arrays_are_views_of_the_files(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(25):
            put(store, b"%d" % number)
    with ConsumeQueue.open_readonly(tmp_path / "consumequeue" / "T" / "0") as queue:
        entries = list(queue)
        arrays = queue.arrays()
        joined = np.concatenate(arrays)[: len(entries)]
        assert [tuple(int(part) for part in row) for row in joined.tolist()] == entries
        assert not arrays[0].flags.writeable
        assert not arrays[0].flags.owndata
        first = tuple(arrays[0][0].tolist())
    assert tuple(arrays[0][0].tolist()) == first  # a view stays valid after the queue is closed


def test_a_closed_segment_has_no_views(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 10)
    segment = Segment(str(tmp_path), 0, 30, "file")
    view = memoryview(segment)
    assert view.readonly
    segment.close()
    assert bytes(view[:3]) == b"abc"
    with pytest.raises(BufferError):
        memoryview(segment)


def test_reading_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, b"a")
    empty = tmp_path / "commitlog" / f"{4096:020d}"
    empty.touch()
    with CommitLog.open_readonly(tmp_path / "commitlog") as log:
        assert [record.body for record in log.records()] == [b"a"]
    assert empty.exists()
