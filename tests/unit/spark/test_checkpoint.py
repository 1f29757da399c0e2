"""Checkpoints: planned once, resumed, and never mixed up."""

import pickle
import resource
import signal
from pathlib import Path

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, WriteFailed
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import (
    LINES_BYTES_MAX,
    InvalidCheckpoint,
    ProgressFiles,
    Slice,
    SliceProgress,
    arguments_digest,
    checkpoint,
)

QUEUE = MessageQueue("Topic", "broker-a", 3)
PLAN = [QueueRange(QUEUE, 0, 10, 1000), QueueRange(QUEUE, 10, 25)]
ARGUMENTS = {"topics": ["Topic"], "since": None}


def never() -> list[QueueRange]:
    raise AssertionError("planned twice")


def test_a_plan_is_made_once_and_read_again(tmp_path: Path) -> None:
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN) as first:
        assert not first.resumed
        assert [each.part for each in first.slices] == PLAN
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, never) as second:
        assert second.resumed
        assert (second.slices, second.id, second.created_ms) == (first.slices, first.id, first.created_ms)


def test_a_plan_that_fails_leaves_no_plan(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), checkpoint(tmp_path / "c", "replay", ARGUMENTS, never):
        pass
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN) as made:
        assert not made.resumed


def test_what_has_a_mark_to_its_end_is_finished(tmp_path: Path) -> None:
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN) as held:
        assert held.unfinished() == list(held.slices)
        held.progress_files.write(SliceProgress(0, 10))
        held.progress_files.write(SliceProgress(1, 24, {"messages": 14}, {"targets": {"T@b:0": [3, 17]}}))
        assert held.unfinished() == [held.slices[1]]
        again = held.progress_files.read(held.slices[1])
        assert (again.next, again.counts, again.detail) == (
            24,
            {"messages": 14},
            {"targets": {"T@b:0": [3, 17]}},
        )
        assert [mark.number for mark in held.progress_files.written(without={0})] == [1]


def test_a_slice_without_a_mark_begins_at_its_start(tmp_path: Path) -> None:
    marks = ProgressFiles(tmp_path)
    assert marks.read(Slice(5, PLAN[1])) == SliceProgress(5, 10)


@pytest.mark.parametrize(
    "content", [b"", b'{"next": 12', b"[]", b'{"next": "x", "counts": {}, "detail": {}}']
)
def test_a_mark_that_cannot_be_read_counts_as_none(tmp_path: Path, content: bytes) -> None:
    marks = ProgressFiles(tmp_path)
    (tmp_path / "5").write_bytes(content)
    assert marks.read(Slice(5, PLAN[1])).next == 10
    assert not list(marks.written())


@pytest.mark.parametrize("torn", [b"\n", b'\n{"next": 2', b'\n{"next": 2, "counts"', b"\n" + bytes(40)])
def test_of_a_line_that_was_cut_short_the_one_before_counts(tmp_path: Path, torn: bytes) -> None:
    marks = ProgressFiles(tmp_path)
    for offset in (15, 17):
        marks.write(SliceProgress(5, offset, {"messages": offset - 10}))
    with (tmp_path / "5").open("ab") as file:
        file.write(torn)
    assert marks.read(Slice(5, PLAN[1])) == SliceProgress(5, 17, {"messages": 7})
    marks.write(SliceProgress(5, 19))
    assert marks.read(Slice(5, PLAN[1])) == SliceProgress(5, 19)


def test_a_slice_that_lasts_does_not_fill_the_disk(tmp_path: Path) -> None:
    marks = ProgressFiles(tmp_path)
    largest = 0
    for offset in range(3000):
        marks.write(SliceProgress(5, offset, {"messages": offset}, {"targets": {"T@b:0": [0, offset]}}))
        largest = max(largest, (tmp_path / "5").stat().st_size)
        assert marks.read(Slice(5, PLAN[1])).next == offset
    assert 1000 < largest <= LINES_BYTES_MAX
    long = SliceProgress(5, 3000, {}, {"files": ["x" * LINES_BYTES_MAX]})
    for _ in range(2):
        marks.write(long)
        assert marks.read(Slice(5, PLAN[1])) == long
    assert (tmp_path / "5").stat().st_size < 2 * LINES_BYTES_MAX
    assert [path.name for path in tmp_path.iterdir()] == ["5"]


def test_a_full_disk_is_an_error_and_the_mark_before_stays(tmp_path: Path) -> None:
    marks = ProgressFiles(tmp_path)
    marks.write(SliceProgress(5, 15))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "5").stat().st_size + 20, before[1]))
    try:
        with pytest.raises(
            WriteFailed, match=r"File too large\); free some space"
        ):  # so the kernel says of this limit
            marks.write(SliceProgress(5, 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert marks.read(Slice(5, PLAN[1])) == SliceProgress(5, 15)


def test_marks_travel(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(ProgressFiles(tmp_path))) == ProgressFiles(tmp_path)


def test_other_arguments_are_refused(tmp_path: Path) -> None:
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN):
        pass
    with (
        pytest.raises(InvalidCheckpoint, match="was started with other arguments; use those again"),
        checkpoint(tmp_path / "c", "replay", {"topics": ["Other"]}, never),
    ):
        pass


def test_another_job_is_refused(tmp_path: Path) -> None:
    with checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN):
        pass
    with (
        pytest.raises(InvalidCheckpoint, match="of a job 'replay'"),
        checkpoint(tmp_path / "c", "export", ARGUMENTS, never),
    ):
        pass


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        checkpoint(tmp_path / "c", "replay", ARGUMENTS, lambda: PLAN),
        pytest.raises(InvalidCheckpoint, match="another run of this job"),
        checkpoint(tmp_path / "c", "replay", ARGUMENTS, never),
    ):
        pass


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"job": "replay", "arguments": 1, "version": 1, "slices": [[1]]}']
)
def test_a_broken_plan_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with (
        pytest.raises(InvalidCheckpoint, match="not a plan of a job"),
        checkpoint(tmp_path, "replay", ARGUMENTS, never),
    ):
        pass


def test_a_folder_that_cannot_be_is_an_option_gone_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InvalidOption, match=r"--checkpoint: .* cannot be used"),
        checkpoint(tmp_path / "file", "replay", ARGUMENTS, never),
    ):
        pass


def test_without_a_folder_it_is_named_after_job_and_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with checkpoint(None, "replay", ARGUMENTS, lambda: PLAN) as held:
        assert held.folder == tmp_path / f".firearrow-replay-{arguments_digest(ARGUMENTS)}"
    with checkpoint(None, "replay", {"topics": ["Other"]}, lambda: PLAN[:1]) as other:
        assert other.folder != held.folder
