"""The journal: what counts after a crash."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.store.log.journal_entries import HEAD, Entry, entries_of
from firearrow.broker.append.progress_journal import FILE_BYTES, FULL_FILES_MAX, Journal, Kind

RUN = "firearrow-0123456789abcdef"


def opened(folder: Path, end: int = 1000, run: str = RUN) -> tuple[Journal, list[Entry]]:
    journal = Journal(folder, run, end)
    return journal, journal.recover_entries()


def test_entries_are_recovered_in_their_order(tmp_path: Path) -> None:
    journal, recovered = opened(tmp_path)
    assert recovered == []
    noted = [
        Entry(Kind.OFFSET, "t@g", 3, 7, 0),
        Entry(Kind.DELAY, "", 2, 9, 900),
        Entry(Kind.OFFSET, "t@ü", 0, 8, 0),
    ]
    for kind, name, number, value, end in noted:
        journal.note(Kind(kind), name, number, value, end)
    assert opened(tmp_path)[1] == noted


def test_an_entry_without_its_record_is_void(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.DELAY, "", 1, 5, 1000)
    journal.note(Kind.DELAY, "", 1, 6, 1001)
    assert [entry.value for entry in opened(tmp_path, 1000)[1]] == [5]


def test_a_void_entry_stays_void_when_the_log_grows_again(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.DELAY, "", 1, 5, 1100)
    opened(tmp_path, 1000)
    assert opened(tmp_path, 5000)[1] == []


def test_a_failed_write_voids_its_entries(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.DELAY, "", 1, 5, 1100)
    journal.cancel(1000)
    journal.note(Kind.DELAY, "", 1, 6, 1090)
    journal.note(Kind.OFFSET, "t@g", 1, 6)
    assert [entry.value for entry in opened(tmp_path, 5000)[1]] == [6, 6]


def test_a_start_compacts_the_valid_entries(tmp_path: Path) -> None:
    """The last entry of a step that was noted often; a removed offset stays removed; each timer and
    decision."""
    journal, _ = opened(tmp_path)
    for value in range(1, 100):
        journal.note(Kind.OFFSET, "t@g", 0, value)
        journal.note(Kind.TIMER, "", 0, value % 2)
    journal.note(Kind.OFFSET, "t@g", 1, 5)
    journal.note(Kind.OFFSET, "t@g", -1, -1)
    journal.note(Kind.OFFSET, "t@g", 1, 6)
    recovered = [
        Entry(Kind.TIMER, "", 0, 0, 0),
        Entry(Kind.OFFSET, "t@g", 0, 99, 0),
        Entry(Kind.TIMER, "", 0, 1, 0),
        Entry(Kind.OFFSET, "t@g", -1, -1, 0),
        Entry(Kind.OFFSET, "t@g", 1, 6, 0),
    ]
    assert opened(tmp_path)[1] == recovered
    assert opened(tmp_path)[1] == recovered


def test_starts_in_quick_succession_do_not_add_up(tmp_path: Path) -> None:
    for value in range(1, 30):
        journal, _ = opened(tmp_path)
        for _ in range(100):
            journal.note(Kind.OFFSET, "t@g", 0, value)
        journal.close()
        assert len(list(tmp_path.glob(f"{RUN}.*"))) <= 2
    journal, recovered = opened(tmp_path)
    assert recovered == [Entry(Kind.OFFSET, "t@g", 0, 29, 0)]


def test_a_disk_that_is_full_at_the_start_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (1, 2):
        journal, _ = opened(tmp_path)
        journal.note(Kind.OFFSET, "t@g", value, value)
        journal.close()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        _, recovered = opened(tmp_path)
    assert "the journal could not be compacted and stays in 2 files" in caplog.text
    assert (
        recovered == opened(tmp_path)[1] == [Entry(Kind.OFFSET, "t@g", value, value, 0) for value in (1, 2)]
    )
    assert not (tmp_path / "packing").exists()


def test_files_of_another_run_are_stale(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.OFFSET, "t@g", 1, 6)
    assert opened(tmp_path, run="firearrow-ffffffffffffffff")[1] == []
    assert not list(tmp_path.glob(f"{RUN}.*"))


def test_files_are_deleted_after_their_entries_were_saved(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for value in range(3 * FILE_BYTES // HEAD.size):
        journal.note(Kind.DELAY, "", 1, value)
    number = journal.rotate()
    journal.note(Kind.DELAY, "", 1, -1)
    assert len(list(tmp_path.glob(f"{RUN}.*"))) == 5
    journal.drop_before(number)
    assert [entry.value for entry in opened(tmp_path)[1]] == [-1]


class Syncs:
    """Which files were synced, in order; `failing` ones are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
        self.names: list[str] = []
        self.promised: list[bool] = []
        self._journal = journal
        self.failing: set[str] = set()
        self._sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self)

    def __call__(self, fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name.rpartition(".")[2]
        if name in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.promised.append(self._journal.has_promises)
        self._sync(fd)
        self.names.append(name)


def filled(journal: Journal, files: int) -> None:
    """That many files more."""
    for value in range(files * (FILE_BYTES // HEAD.size)):
        journal.note(Kind.TIMER, "", 1, value)


def test_full_files_are_synced_first_and_only_with_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    syncs = Syncs(monkeypatch, journal)
    journal.note(Kind.DELAY, "", 1, 5, 900)
    filled(journal, 2)
    assert (syncs.names, journal.has_promises) == ([], True)
    journal.sync()
    numbers = [int(name) for name in syncs.names]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert syncs.promised == [True, True, False]
    assert not journal.has_promises
    journal.sync()
    assert len(syncs.names) == 3
    journal.close()


def test_full_files_do_not_accumulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path)
    syncs = Syncs(monkeypatch, journal)
    filled(journal, FULL_FILES_MAX + 3)
    assert FULL_FILES_MAX <= len(syncs.names) <= FULL_FILES_MAX + 1
    journal.close()


def test_a_full_file_that_cannot_be_synced_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal, _ = opened(tmp_path)
    syncs = Syncs(monkeypatch, journal)
    syncs.failing = {f"{journal.rotate():010d}"}
    filled(journal, 1)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    assert ["cannot be flushed" in record.message for record in caplog.records] == [True]
    journal.sync()
    assert len(syncs.names) == 1
    journal.close()


def test_a_torn_entry_ends_the_file(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for value in (1, 2, 3):
        journal.note(Kind.OFFSET, "topic@group", 0, value)
    journal.close()
    path = max(tmp_path.glob(f"{RUN}.*"))
    data = bytearray(path.read_bytes())
    data[2 * (HEAD.size + 11) + 20] ^= 1
    path.write_bytes(data)
    assert [entry.value for entry in opened(tmp_path)[1]] == [1]


def test_a_full_disk_loses_journal_entries_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal, _ = opened(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: 0)
        for value in range(FILE_BYTES // HEAD.size + 10):
            journal.note(Kind.TIMER, "", 1, value, value + 2000)
        journal.cancel(1500)
    assert len([record for record in caplog.records if "no space for the journal" in record.message]) == 1
    journal.note(Kind.DELAY, "", 1, 77)
    assert [entry.value for entry in opened(tmp_path, 10**9)[1]] == [77]


def no_space(fd: int, data: bytes) -> int:
    return 0


def commits(journal: Journal, rounds: int) -> None:
    for value in range(rounds):
        for queue_id in range(200):
            journal.note(Kind.OFFSET, "topic@group", queue_id, value)


def offsets(entries: list[Entry]) -> dict[int, int]:
    return {entry.number: entry.value for entry in entries if entry.kind == Kind.OFFSET}


def test_commits_on_a_full_disk_survive_a_kill_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.OFFSET, "topic@group", 999, 1, 900)
    monkeypatch.setattr(os, "write", no_space)
    for part in range(4):
        commits(journal, 300 + part)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2 * FILE_BYTES
    journal.sync()
    assert caplog.records == []
    monkeypatch.undo()
    assert offsets(opened(tmp_path)[1]) == dict.fromkeys(range(200), 302) | {999: 1}


def test_void_entries_stay_void_when_a_file_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, _ = opened(tmp_path)
    journal.note(Kind.DELAY, "", 1, 5, 1500)
    journal.rotate()
    journal.note(Kind.DELAY, "", 2, 6, 1600)
    journal.cancel(1400)
    journal.note(Kind.DELAY, "", 3, 7, 1450)
    monkeypatch.setattr(os, "write", no_space)
    commits(journal, 200)
    monkeypatch.undo()
    recovered = [
        (entry.number, entry.value) for entry in opened(tmp_path, 2000)[1] if entry.kind == Kind.DELAY
    ]
    assert recovered == [(3, 7)]


@pytest.mark.parametrize("call", ["fdatasync", "rename", "fsync", "second rename"])
def test_an_error_while_compacting_loses_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    journal, _ = opened(tmp_path)
    replace, renames = Path.replace, []

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    def renaming(path: Path, target: Path) -> Path:
        renames.append(path)
        if len(renames) == (1 if call == "rename" else 2):
            failing()
        return replace(path, target)

    monkeypatch.setattr(os, "write", no_space)
    if "rename" in call:
        monkeypatch.setattr(Path, "replace", renaming)
    else:
        monkeypatch.setattr(os, call, failing)
    harness = FILE_BYTES // (HEAD.size + len("topic@group")) // 200
    commits(journal, harness)
    before = offsets(list(entries_of(journal._map[:])))  # type: ignore[index]
    commits(journal, 1)
    assert len(caplog.records) >= 1
    monkeypatch.undo()
    assert offsets(opened(tmp_path)[1]).keys() == before.keys()


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert len(list(entries_of(data))) <= len(data) // HEAD.size
