"""A failing disk: nothing half-written is visible, offsets are rolled back, and the folder has one owner."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.files.errors import StoreDamaged, StoreForeign, StoreLocked
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.log.results import PutRefused
from firearrow._native.store.message_store import InnerMessage
from tests.support.stores import HOST, bodies, item, open_store, properties_of, put


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    yield
    heal()


@pytest.mark.parametrize("partial_bytes", [0, 1, 8, 60, 150])
def test_a_failed_pwrite_leaves_everything_as_it_was(tmp_path: Path, partial_bytes: int) -> None:
    with open_store(tmp_path) as store:
        put(store, b"before")
        end = store.write()
        first = put(store, b"lost")
        put(store, b"lost too", queue_id=1)
        fail_next("pwrite", errno.ENOSPC, partial_bytes=partial_bytes)
        with pytest.raises(OSError, match="No space"):
            store.write()
        heal()
        assert store.writable
        assert (store.written, store.staged_bytes) == (end, 0)
        assert bodies(store) == [b"before"]
        again = put(store, b"again")
        assert (again.physical_offset, again.queue_offset) == (first.physical_offset, first.queue_offset)
        store.write()
        assert bodies(store) == [b"before", b"again"]
        assert bodies(store, queue_id=1) == []


def test_a_part_that_cannot_be_rolled_back_stops_the_store(tmp_path: Path) -> None:
    """The batch spans two files; the first takes its part, then the disk accepts nothing more, not even zeros."""
    store = open_store(tmp_path)
    put(store, b"before")
    store.write()
    put(store, b"a" * 3000)
    put(store, b"b" * 3000)
    fail_next("pwrite", errno.EIO, after=1)
    with pytest.raises(StoreDamaged, match="free disk space"):
        store.write()
    heal()
    assert not store.writable
    assert bodies(store) == [b"before"]
    with pytest.raises(PutRefused, match="store"):
        put(store, b"c")
    store.abandon()
    with open_store(tmp_path) as store:
        assert bodies(store) in ([b"before"], [b"before", b"a" * 3000])


def test_a_segment_that_cannot_be_created_drops_the_whole_batch(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put(store, b"a" * 3000)
        end = store.write()
        put(store, b"b" * 700)
        put(store, b"c" * 3000)
        fail_next("create", errno.ENOSPC)
        with pytest.raises(OSError, match="No space") as failed:
            store.write()
        heal()
        assert failed.value.errno == errno.ENOSPC
        assert store.writable
        assert store.written == end
        assert bodies(store) == [b"a" * 3000]
        put(store, b"d" * 3000)
        store.write()
        assert bodies(store) == [b"a" * 3000, b"d" * 3000]
    with open_store(tmp_path) as store:
        assert bodies(store) == [b"a" * 3000, b"d" * 3000]


def test_no_space_for_queue_entries_refuses_the_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fail_next("reserve", errno.ENOSPC)
        with pytest.raises(PutRefused, match="disk"):
            put(store, b"a")
        heal()
        assert put(store, b"b").queue_offset == 0
        store.write()
        assert bodies(store) == [b"b"]


def test_a_batch_without_space_stages_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(9):
            put(store, b"%d" % number)
        store.write()
        staged = store.staged_bytes
        items = b"".join(item(b"i", properties_of(KEYS=f"k{number}")) for number in range(8))
        fail_next("reserve", errno.ENOSPC)
        with pytest.raises(PutRefused, match="disk"):
            store.put_batch(
                InnerMessage("T", 0, items, b"", born_timestamp=1, born_host=HOST, store_host=HOST), now_ms=1
            )
        heal()
        assert store.staged_bytes == staged
        assert put(store, b"9").queue_offset == 9
        store.write()
        assert bodies(store) == [b"%d" % number for number in range(10)]


def test_a_failed_sync_stops_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path, sync_flush=True)
    put(store, b"a")
    store.write()
    fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        store.sync()
    heal()
    assert not store.writable
    assert store.reader.max_offset("T", 0) == 0
    with pytest.raises(PutRefused, match="store"):
        put(store, b"b")
    store.abandon()


TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
    except OSError:
        sys.exit(9)
"""


def locked_for_others(root: Path) -> bool:
    outcome = subprocess.run([sys.executable, "-c", TRY_LOCK, str(root / "lock")], check=False)
    assert outcome.returncode in (0, 9)
    return outcome.returncode == 9


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    with open_store(tmp_path):
        assert locked_for_others(tmp_path)
        with pytest.raises(StoreLocked):
            open_store(tmp_path)
        assert locked_for_others(tmp_path), "the refused open released the owner's lock"
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert not locked_for_others(tmp_path)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(StoreForeign, match="--store"):
        open_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
