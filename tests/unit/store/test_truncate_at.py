"""A log that is truncated at an open: only where a record begins, what is cut is kept, everything else follows."""

from pathlib import Path

import pytest

from firearrow._native.store.message_store import MessageStore, StoreConfig, StoreDamaged
from tests.support.stores import put

SMALL = {"segment_bytes": 1 << 12, "queue_file_bytes": 400, "index_slots": 100, "index_entries": 400}
COUNT = 60


def filled(root: Path, *, killed: bool) -> list[int]:
    """Where the records begin, in several files."""
    store = MessageStore.open(root, StoreConfig(**SMALL))  # type: ignore[arg-type]
    offsets = []
    for number in range(COUNT):
        offsets.append(put(store, b"%03d" % number * 60, queue_id=number % 2).physical_offset)
        store.write()
    store.abandon() if killed else store.close()
    return offsets


def cut(root: Path, at: int) -> MessageStore:
    return MessageStore.open(root, StoreConfig(**SMALL, truncate_at=at))  # type: ignore[arg-type]


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 7, 30, COUNT - 1])
def test_queues_and_files_follow(tmp_path: Path, killed: bool, kept: int) -> None:
    at = filled(tmp_path, killed=killed)[kept]
    with cut(tmp_path, at) as store:
        assert store.written == at
        ends = [store.reader.max_offset("T", queue) for queue in range(2)]
        assert ends == [(kept + 1) // 2, kept // 2]
        assert any("is truncated at" in line for line in store.findings)
        again = put(store, b"again", queue_id=0)
        assert (again.physical_offset, again.queue_offset) == (at, ends[0])
        store.write()
    assert sum(path.stat().st_size for path in (tmp_path / "damaged").iterdir()) > 100
    with MessageStore.open(tmp_path, StoreConfig(**SMALL)) as store:  # type: ignore[arg-type]
        assert store.findings == ()
        assert store.reader.max_offset("T", 0) == ends[0] + 1


def test_only_where_a_record_begins(tmp_path: Path) -> None:
    offsets = filled(tmp_path, killed=False)
    with pytest.raises(StoreDamaged, match="no record begins there"):
        cut(tmp_path, offsets[5] + 1)
    with cut(tmp_path, offsets[-1] + 100_000) as store:
        assert store.written > offsets[-1]
        assert store.findings == ()
    assert not (tmp_path / "damaged").exists()
