"""A log that continues in its old files: in a store that runs, that is stopped, and that is killed at any step."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow._native.store.files import recycled_segment as module
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import bodies, drop_segments, needs_zeroing, open_store, put

EVER = 1 << 60

KILLED = """
import os, signal, sys
from pathlib import Path
from firearrow._native.store.files import exclusive_file
from firearrow._native.store.files import recycled_segment
from tests.support.stores import drop_segments, open_store, put
folder = Path(sys.argv[1])
exclusive_file.CHUNK_BYTES = 1024
calls = 0
def counted(call):
    def instead(*given, **named):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        done = call(*given, **named)
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return instead
def run(root):
    store = open_store(root)
    for number in range(40):
        put(store, b"%0400d" % number)
        store.write()
    store.flush_queues()
    os.rename, os.fsync, os.unlink = counted(os.rename), counted(os.fsync), counted(os.unlink)
    recycled_segment.zero_range = counted(recycled_segment.zero_range)
    assert drop_segments(store, at_most=1) == 1
    for number in range(40, 60):
        put(store, b"%0400d" % number)
        store.write()
status, last = -1, 0
while status != 0:
    last += 1
    child = os.fork()
    if child == 0:
        run(folder / f"killed{last}")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    print(last)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    needs_zeroing(tmp_path)
    return tmp_path / "store"


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def fill(store: MessageStore, first: int = 0, count: int = 40) -> None:
    for number in range(first, first + count):
        put(store, b"%0400d" % number)
        store.write()
    store.flush_queues()


def inodes(root: Path) -> dict[int, int]:
    return {int(path.name): path.stat().st_ino for path in sorted((root / "commitlog").iterdir())}


def test_the_log_continues_in_its_old_files(root: Path) -> None:
    with open_store(root) as store:
        fill(store)
        for first in range(40, 200, 8):
            before = inodes(root)
            assert drop_segments(store, at_most=1) == 1
            fill(store, first, 8)
            store.prepare()
            assert before[min(before)] in inodes(root).values()
        log = store.written
        kept = bodies(store)
    assert "spare" not in names(root)
    with open_store(root) as store:
        assert (store.written, bodies(store)) == (log, kept)


def test_a_clean_stop_leaves_no_spare_file(root: Path) -> None:
    with open_store(root) as store:
        fill(store)
        drop_segments(store, at_most=1)
        assert "spare" in names(root)
    assert "spare" not in names(root)


def test_a_store_killed_at_any_step_opens_complete(root: Path, tmp_path: Path) -> None:
    """Killed before and after each call that creates and takes the spare file."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    steps = done.stdout.split()
    assert len(steps) > 20
    for step in steps:
        folder = tmp_path / f"killed{step}"
        with open_store(folder) as store:
            found = [int(body) for body in bodies(store)]
            assert "spare" not in names(folder)
            assert found == list(range(found[0], found[-1] + 1))
            assert 39 <= found[-1] < 60
            fill(store, found[-1] + 1, 10)
            assert [int(body) for body in bodies(store)] == list(range(found[0], found[-1] + 11))


def test_if_its_new_name_cannot_be_synced_a_new_file_is_created(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(root) as store:
        fill(store)
        drop_segments(store, at_most=1)
        monkeypatch.setattr(module, "fsync_dir", failing_folder)
        fill(store, 40, 20)
        assert len(bodies(store)) > 50
        assert "spare" not in names(root)


def failing_folder(path: str) -> None:
    raise OSError(errno.EIO, "no", path)
