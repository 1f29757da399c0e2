"""Recycled segment: an expired segment is zeroed and reused, or deleted if any other user may want its bytes."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from firearrow._native.store.files import exclusive_file as module
from firearrow._native.store.files.exclusive_file import delete_recycled, exclusive_file
from firearrow._native.store.files.recycled_segment import RecycledSegment
from firearrow._native.store.files.segment import Segment, fail_next, heal
from tests.support.stores import SEGMENT_BYTES, needs_zeroing

OLD = b"old " * (SEGMENT_BYTES // 4)
NEXT = f"{SEGMENT_BYTES:020d}"

HOLDER = f"""
import mmap, sys
from firearrow._native.store.files.segment import Segment
path, how = sys.argv[1:]
folder, _, name = path.rpartition("/")
if how == "mapped":
    held = memoryview(Segment(folder, 0, {SEGMENT_BYTES}, name))
    read = lambda: bytes(held)
else:
    held = open(path, "rb")
    read = lambda: (held.seek(0), held.read())[1]
read()
print("held", flush=True)
sys.stdin.readline()
sys.stdout.buffer.write(read())
"""


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    yield
    heal()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for stores."""
    needs_zeroing(tmp_path)
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    return root


def segment_of(root: Path) -> Segment:
    """One that its owner has released."""
    (root / "commitlog" / f"{0:020d}").write_bytes(OLD)
    return Segment(str(root / "commitlog"), 0, SEGMENT_BYTES)


def taken(recycled: RecycledSegment, root: Path) -> Path | None:
    path = root / "commitlog" / NEXT
    file = recycled.open_as(str(path))
    if file < 0:
        return None
    os.close(file)
    return path


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


class Holder:
    """Another process that has the file, `mapped` or `open`."""

    def __init__(self, path: Path, how: str) -> None:
        asked = [sys.executable, "-c", HOLDER, str(path), how]
        self._process = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._out.readline() == b"held\n"

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def read(self) -> bytes:
        """Its content as the process reads it now; then it ends."""
        return self._process.communicate(b"\n", timeout=30)[0]


class Overlay:
    """A folder for stores, an overlay mount. Skips where it cannot be mounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at = folder / "laid"

    def __enter__(self) -> Path:
        for name in ("under", "over", "work", "laid"):
            (self._folder / name).mkdir()
        under, over, work = (self._folder / name for name in ("under", "over", "work"))
        options = f"lowerdir={under},upperdir={over},workdir={work}"
        asked = ["mount", "-t", "overlay", "none", "-o", options, str(self._at)]
        if os.geteuid() != 0 or subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            pytest.skip("needs root to mount an overlay file system")
        (self._at / "commitlog").mkdir()
        return self._at

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self._at)], check=True)


def test_an_old_segment_becomes_the_next_all_zeros(root: Path) -> None:
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    number = os.stat(segment.path).st_ino
    recycled.recycle(segment)
    assert (recycled.is_ready, names(root)) == (True, {"spare"})
    assert (root / "spare").read_bytes() == bytes(SEGMENT_BYTES)
    path = taken(recycled, root)
    assert path is not None
    assert (path.stat().st_ino, path.read_bytes()) == (number, bytes(SEGMENT_BYTES))
    assert (recycled.is_ready, names(root)) == (False, {f"commitlog/{NEXT}"})
    assert taken(recycled, root) is None


def test_it_is_zeroed_in_chunks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    recycled.recycle(segment_of(root))
    assert (root / "spare").read_bytes() == bytes(SEGMENT_BYTES)


def test_one_is_enough(root: Path) -> None:
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    recycled.recycle(segment)
    second = segment_of(root)
    recycled.recycle(second)
    assert names(root) == {"spare", f"commitlog/{0:020d}"}
    delete_recycled(second)
    assert names(root) == {"spare"}


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_a_file_that_another_process_has_is_deleted_and_stays_readable_there(root: Path, how: str) -> None:
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    holder = Holder(Path(segment.path), how)
    recycled.recycle(segment)
    delete_recycled(segment)
    assert (recycled.is_ready, names(root)) == (False, set())
    assert holder.read() == OLD


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_a_deleted_file_is_not_truncated_for_its_users(root: Path, how: str) -> None:
    segment = segment_of(root)
    holder = Holder(Path(segment.path), how)
    delete_recycled(segment)
    assert names(root) == set()
    assert holder.read() == OLD


def test_a_file_that_this_process_has_mapped_is_not_recycled(root: Path) -> None:
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    view = memoryview(segment)
    recycled.recycle(segment)
    delete_recycled(segment)
    assert (bytes(view), names(root)) == (OLD, set())


def test_a_file_that_a_backup_links_is_not_recycled(root: Path, tmp_path: Path) -> None:
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    os.link(segment.path, tmp_path / "kept")
    recycled.recycle(segment)
    assert names(root) == {f"commitlog/{0:020d}"}
    delete_recycled(segment)
    assert (names(root), (tmp_path / "kept").read_bytes()) == (set(), OLD)


def test_a_link_created_in_between_keeps_its_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def linked(old: str, new: str) -> None:
        os.link(old, tmp_path / "kept")
        rename(old, new)

    monkeypatch.setattr(os, "rename", linked)
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    recycled.recycle(segment_of(root))
    assert (recycled.is_ready, names(root), (tmp_path / "kept").read_bytes()) == (False, set(), OLD)


def test_a_file_of_another_size_is_not_used(root: Path) -> None:
    recycled = RecycledSegment(str(root), 2 * SEGMENT_BYTES)
    segment = segment_of(root)
    recycled.recycle(segment)
    assert names(root) == {f"commitlog/{0:020d}"}


def test_a_file_that_was_changed_meanwhile_is_not_used(root: Path) -> None:
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    recycled.recycle(segment_of(root))
    os.truncate(root / "spare", 100)
    assert taken(recycled, root) is None
    recycled.recycle(segment_of(root))
    assert taken(recycled, root) is not None


def test_an_existing_name_is_not_replaced(root: Path) -> None:
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    recycled.recycle(segment_of(root))
    (root / "commitlog" / NEXT).write_bytes(b"another file")
    assert taken(recycled, root) is None
    assert (root / "commitlog" / NEXT).read_bytes() == b"another file"


def test_one_that_a_killed_process_left_is_deleted(root: Path) -> None:
    (root / "spare").write_bytes(OLD)
    assert taken(RecycledSegment(str(root), SEGMENT_BYTES), root) is None
    assert names(root) == set()


def test_a_folder_with_its_name_is_kept(root: Path) -> None:
    (root / "spare").mkdir()
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    recycled.recycle(segment)
    delete_recycled(segment)
    recycled.drop()
    assert (root / "spare").is_dir()
    assert (recycled.is_ready, names(root)) == (False, set())


def test_without_zeroing_support_it_is_deleted(root: Path) -> None:
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    fail_next("zero", errno.EOPNOTSUPP)
    recycled.recycle(segment_of(root))
    assert (recycled.is_ready, names(root)) == (False, set())


def test_half_zeroed_it_is_deleted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1024)
    recycled = RecycledSegment(str(root), SEGMENT_BYTES)
    fail_next("zero", errno.EIO, after=2)
    recycled.recycle(segment_of(root))
    assert (recycled.is_ready, names(root)) == (False, set())


@pytest.mark.parametrize(("good", "is_told"), [(0, True), (1, True), (2, False)])
def test_a_file_that_cannot_be_synced_is_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch, good: int, is_told: bool
) -> None:
    """The folders of both names, then the zeros."""
    fsync, calls = os.fsync, 0

    def failing(file: int) -> None:
        nonlocal calls
        calls += 1
        if calls > good:
            raise OSError(errno.EIO, "no")
        fsync(file)

    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    monkeypatch.setattr(os, "fsync", failing)
    if is_told:
        with pytest.raises(OSError, match="no"):
            recycled.recycle(segment)
    else:
        recycled.recycle(segment)
    assert (recycled.is_ready, names(root)) == (False, set())
    monkeypatch.setattr(os, "fsync", fsync)
    recycled.recycle(segment)
    delete_recycled(segment)


def test_a_log_on_another_file_system_is_deleted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(old: str, new: str) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "rename", refusing)
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    recycled.recycle(segment)
    assert names(root) == {f"commitlog/{0:020d}"}
    delete_recycled(segment)
    assert names(root) == set()


def test_where_leases_ignore_mappings_no_file_is_exclusive(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on overlay file systems: a lease is granted for mapped files."""
    recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
    monkeypatch.setattr(fcntl, "fcntl", lambda *given: 0)
    with exclusive_file(segment.path, SEGMENT_BYTES) as file:
        assert file is None
    recycled.recycle(segment)
    assert (recycled.is_ready, names(root)) == (False, set())


def test_on_overlay_file_systems_readers_can_continue(tmp_path: Path) -> None:
    with Overlay(tmp_path) as root:
        for held in (True, False):
            recycled, segment = RecycledSegment(str(root), SEGMENT_BYTES), segment_of(root)
            holder = Holder(Path(segment.path), "mapped") if held else None
            recycled.recycle(segment)
            delete_recycled(segment)
            assert (recycled.is_ready, names(root)) == (False, set())
            assert holder is None or holder.read() == OLD


def test_a_lease_ends_and_its_break_kills_no_process(root: Path) -> None:
    segment = segment_of(root)
    script = "import sys; open(sys.argv[1], 'rb').read(); print('read')"
    opening = [sys.executable, "-c", script, segment.path]
    with exclusive_file(segment.path, SEGMENT_BYTES) as file:
        assert file is not None
        waiting = subprocess.Popen(opening, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
    assert waiting.communicate(timeout=10)[0] == b"read\n"
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
