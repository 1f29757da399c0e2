"""Every way in which a store's own files may be damaged: it opens, logs what it found, and serves both sides."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.files.errors import StoreDamaged, StoreForeign
from tests.corruption.filled import Filled, log_file
from tests.support.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, open_store

Ranges = list[tuple[int, int]]
Damage = Callable[[Path], Ranges]
"""Damages a store; returns which bytes of the log are lost."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("stopped") / "store")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("killed") / "store", killed=True)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def queue_file(root: Path, number: int = 0) -> Path:
    return root / "consumequeue" / "Orders" / "1" / f"{number * QUEUE_FILE_BYTES:020d}"


def index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


def log_cut(root: Path) -> Ranges:
    os.truncate(log_file(root, 1), 1500)
    return [(SEGMENT_BYTES + 1500, 2 * SEGMENT_BYTES)]


def log_empty(root: Path) -> Ranges:
    os.truncate(log_file(root, 1), 0)
    return [(SEGMENT_BYTES, 2 * SEGMENT_BYTES)]


def log_missing(root: Path) -> Ranges:
    log_file(root, 2).unlink()
    return [(2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES)]


def log_two_missing(root: Path) -> Ranges:
    log_file(root, 1).unlink()
    return [(SEGMENT_BYTES, 2 * SEGMENT_BYTES), *log_missing(root)]


def log_long(root: Path) -> Ranges:
    with log_file(root, 1).open("ab") as file:
        file.write(b"appended by mistake")
    return []


def log_garbled(root: Path) -> Ranges:
    overwrite(log_file(root, 1), 700, b"\xa5" * 900)
    return [(SEGMENT_BYTES + 700, SEGMENT_BYTES + 1600)]


def log_zeroed(root: Path) -> Ranges:
    overwrite(log_file(root, 1), 0, bytes(1024))
    return [(SEGMENT_BYTES, SEGMENT_BYTES + 1024)]


def log_body_flipped(root: Path) -> Ranges:
    overwrite(log_file(root, 1), 100, b"\xff")
    return [(SEGMENT_BYTES + 100, SEGMENT_BYTES + 101)]


def log_last_cut(root: Path) -> Ranges:
    last = max((root / "commitlog").iterdir())
    os.truncate(last, 700)
    return [(int(last.name) + 700, int(last.name) + SEGMENT_BYTES)]


def log_with_misplaced_file(root: Path) -> Ranges:
    (root / "commitlog" / "notes.txt").write_text("mine")
    (root / "commitlog" / "folder").mkdir()
    (root / "commitlog" / f"{777:020d}").write_bytes(bytes(SEGMENT_BYTES))
    (root / "commitlog" / ("9" * 20)).write_bytes(bytes(SEGMENT_BYTES))
    return []


def queue_cut(root: Path) -> Ranges:
    os.truncate(queue_file(root), 90)
    return []


def queue_empty(root: Path) -> Ranges:
    os.truncate(queue_file(root), 0)
    return []


def queue_long(root: Path) -> Ranges:
    os.truncate(queue_file(root, 1), 333)
    return []


def queue_garbled(root: Path) -> Ranges:
    for path in queue_file(root).parent.iterdir():
        overwrite(path, 0, os.urandom(QUEUE_FILE_BYTES))
    return []


def queue_zeroed(root: Path) -> Ranges:
    overwrite(queue_file(root, 1), 0, bytes(QUEUE_FILE_BYTES))
    return []


def queue_file_missing(root: Path) -> Ranges:
    queue_file(root, 1).unlink()
    return []


def queue_first_missing(root: Path) -> Ranges:
    queue_file(root).unlink()
    return []


def queue_last_missing(root: Path) -> Ranges:
    max(queue_file(root).parent.iterdir()).unlink()
    return []


def queue_missing(root: Path) -> Ranges:
    shutil.rmtree(queue_file(root).parent)
    return []


def topic_missing(root: Path) -> Ranges:
    shutil.rmtree(root / "consumequeue" / "Orders")
    return []


def queues_missing(root: Path) -> Ranges:
    shutil.rmtree(root / "consumequeue")
    return []


def queues_swapped(root: Path) -> Ranges:
    orders = root / "consumequeue" / "Orders"
    (orders / "0").rename(orders / "x")
    (orders / "1").rename(orders / "0")
    (orders / "x").rename(orders / "1")
    return []


def queue_with_misplaced_files(root: Path) -> Ranges:
    (root / "consumequeue" / "notes.txt").write_text("mine")
    (queue_file(root).parent / "notes.txt").write_text("mine")
    (root / "consumequeue" / "Orders" / "0077").mkdir()
    (root / "consumequeue" / "Orders" / "none").mkdir()
    return []


def index_cut(root: Path) -> Ranges:
    os.truncate(index_file(root), 100)
    return []


def index_garbled(root: Path) -> Ranges:
    overwrite(index_file(root), 0, b"\x5a" * 300)
    return []


def index_missing(root: Path) -> Ranges:
    shutil.rmtree(root / "index")
    return []


def index_one_missing(root: Path) -> Ranges:
    max((root / "index").iterdir()).unlink()
    return []


def index_with_misplaced_file(root: Path) -> Ranges:
    (root / "index" / "notes.txt").write_text("mine")
    (root / "index" / "folder").mkdir()
    return []


def checkpoint_missing(root: Path) -> Ranges:
    (root / "checkpoint").unlink()
    return []


def checkpoint_cut(root: Path) -> Ranges:
    os.truncate(root / "checkpoint", 17)
    return []


def checkpoint_garbled(root: Path) -> Ranges:
    (root / "checkpoint").write_bytes(b"\x37" * 4096)
    return []


def checkpoint_from_the_future(root: Path) -> Ranges:
    overwrite(root / "checkpoint", 0, (1 << 50).to_bytes(8, "big") * 3)
    return queue_missing(root)


def all_derived_gone(root: Path) -> Ranges:
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "index")
    return [*queues_missing(root), *log_garbled(root)]


SILENT = {checkpoint_garbled, log_garbled, log_zeroed, log_body_flipped}
"""Damage that a start after a clean stop does not look for: a reader finds it, and the next start repairs it."""
ON_BOTH_SIDES = (
    log_cut, log_empty, log_missing, log_two_missing, log_long, log_with_misplaced_file,
    queue_cut, queue_empty, queue_long, queue_garbled, queue_zeroed, queue_file_missing, queue_first_missing,
    queue_last_missing, queue_missing, topic_missing, queues_missing, queues_swapped, queue_with_misplaced_files,
    index_cut, index_garbled, index_missing, index_one_missing, index_with_misplaced_file,
    checkpoint_missing, checkpoint_cut, checkpoint_garbled, checkpoint_from_the_future,
)  # fmt: skip
AFTER_A_STOP = (log_garbled, log_zeroed, log_body_flipped, log_last_cut, all_derived_gone)


@pytest.mark.parametrize("damage", [*ON_BOTH_SIDES, *AFTER_A_STOP], ids=lambda damage: damage.__name__)
def test_after_a_clean_stop_all_undamaged_messages_are_served(
    stopped: Filled, damage: Damage, tmp_path: Path
) -> None:
    root = stopped.copy(tmp_path / "store")
    must = stopped.untouched(damage(root))
    findings = stopped.check(root, must)
    assert findings or damage in SILENT
    assert all("\n" not in line for line in findings)
    stopped.continues(root)
    assert [line for line in stopped.check(root, must, more=True) if "left in place" not in line] == []


@pytest.mark.parametrize("damage", ON_BOTH_SIDES, ids=lambda damage: damage.__name__)
def test_after_a_kill_all_undamaged_messages_are_served(
    killed: Filled, damage: Damage, tmp_path: Path
) -> None:
    root = killed.copy(tmp_path / "store")
    must = killed.untouched(damage(root))
    killed.check(root, must)
    killed.continues(root)


def test_truncated_bytes_of_the_log_are_kept(stopped: Filled, tmp_path: Path) -> None:
    root = stopped.copy(tmp_path / "store")
    log_garbled(root)
    log_long(root)
    shutil.rmtree(root / "consumequeue")
    findings = stopped.check(root, set())
    kept = [path.read_bytes() for path in sorted((root / "damaged").iterdir())]
    assert kept[0].startswith(b"appended by mistake")
    assert b"\xa5" * 900 in kept[1]
    assert sum(str(root / "damaged") in line for line in findings) == 2


def test_a_log_of_another_size_is_refused_with_both_remedies(stopped: Filled, tmp_path: Path) -> None:
    root = stopped.copy(tmp_path / "store")
    with pytest.raises(StoreForeign, match=f"mappedFileSizeCommitLog={SEGMENT_BYTES}.*truncate -s"):
        open_store(root, segment_bytes=2 * SEGMENT_BYTES)
    stopped.check(root, set(stopped.positions))


def test_a_missing_log_is_refused_until_it_is_back(stopped: Filled, tmp_path: Path) -> None:
    """It may not be mounted: a start without it would truncate the queues."""
    root = stopped.copy(tmp_path / "store")
    (root / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreDamaged, match="restore or mount it"):
        open_store(root)
    (root / "commitlog").rmdir()
    (tmp_path / "elsewhere").rename(root / "commitlog")
    stopped.check(root, set(stopped.positions))


def test_files_far_after_a_gap_are_refused(stopped: Filled, tmp_path: Path) -> None:
    root = stopped.copy(tmp_path / "store")
    far = root / "commitlog" / f"{(1 << 40):020d}"
    far.write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(StoreDamaged, match=f"before {far}"):
        open_store(root)
    far.unlink()
    stopped.check(root, set(stopped.positions))
