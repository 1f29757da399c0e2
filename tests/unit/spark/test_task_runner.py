"""The task runner: slices packed into tasks, progress shown, queues mapped; errors of tasks are reported."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import SendFailed
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs import planning, task_runner
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.progress import ProgressView, ThroughputMeter, shown
from firearrow.spark_tools.jobs.queue_mapping import (
    QueueRouting,
    RoundRobinRouting,
    map_queues,
    queue_of,
    queue_text,
)
from firearrow.spark_tools.jobs.rate_limit import BURST_S, RateLimits, TokenBucket
from tests.spark.in_process_context import InProcessSparkContext
from tests.support.clock import ManualClock


def queue(number: int, topic: str = "T", broker: str = "b") -> MessageQueue:
    return MessageQueue(topic, broker, number)


ranges = st.lists(
    st.builds(
        lambda number, start, length, size: QueueRange(queue(number), start, start + length, size),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.integers(1, 5000),
        st.integers(0, 1 << 30),
    ),
    max_size=20,
)


@given(ranges, st.integers(1, 9), st.booleans(), st.integers(1, 5))
def test_every_slice_is_in_one_task_and_queues_stay_in_order(
    parts: list[QueueRange], cores: int, whole_queues: bool, concurrency: int
) -> None:
    slices = [Slice(number, part) for number, part in enumerate(parts)]
    tasks = task_runner.tasks_of(slices, cores, whole_queues=whole_queues, concurrency=concurrency)
    assert sorted(slice_.number for task in tasks for slice_ in task) == [slice_.number for slice_ in slices]
    assert len(tasks) <= cores * task_runner.TASKS_PER_CORE
    assert all(tasks)
    groups = len({part.queue for part in parts}) if whole_queues else len(parts)
    assert len(tasks) == min(
        groups, cores * task_runner.TASKS_PER_CORE, max(cores, math.ceil(groups / concurrency))
    )
    if whole_queues:
        for each in {part.queue for part in parts}:
            holding = [task for task in tasks if any(slice_.part.queue == each for slice_ in task)]
            assert len(holding) == 1
            starts = [slice_.part.start for slice_ in holding[0] if slice_.part.queue == each]
            assert starts == sorted(starts)


@given(st.integers(0, 500), st.integers(1, 9))
def test_handfuls_are_all_tasks_in_order_and_single_ones_at_the_end(count: int, cores: int) -> None:
    tasks = [[Slice(number, QueueRange(queue(0), number, number + 1))] for number in range(count)]
    found = task_runner.task_groups(tasks, cores)
    assert [task for handful in found for task in handful] == tasks
    sizes = [len(handful) for handful in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(0 < size <= task_runner.GROUP_TASKS_MAX for size in sizes)
    assert sizes[-cores:] == [1] * min(cores, count)


@given(ranges, st.integers(1, 1 << 28), st.integers(1, 3000))
def test_slices_are_the_ranges_in_small(parts: list[QueueRange], size: int, count: int) -> None:
    for part in parts:
        sliced = planning.slices([part], size=size, count=count)
        assert [slice_.start for slice_ in sliced[1:]] == [slice_.end for slice_ in sliced[:-1]]
        assert (sliced[0].start, sliced[-1].end) == (part.start, part.end)
        assert all(0 < len(slice_) <= count for slice_ in sliced)


def refusing(slices: Sequence[Slice], marks: ProgressFiles) -> None:
    for slice_ in slices:
        if slice_.part.queue.queue_id == 1:
            raise SendFailed("the broker went away")
        marks.write(SliceProgress(slice_.number, slice_.part.end))


def test_a_refusal_ends_its_task_only_and_is_reported_once(tmp_path: Path) -> None:
    slices = [Slice(number, QueueRange(queue(number % 3), number, number + 1)) for number in range(6)]
    tasks = [[slices[number], slices[number + 3]] for number in range(3)]
    errors = task_runner.run(InProcessSparkContext(), [*tasks, tasks[1]], ProgressFiles(tmp_path), refusing)
    assert errors == ["the broker went away"]
    assert [mark.number for mark in ProgressFiles(tmp_path).written()] == [0, 2, 3, 5]


BIG = task_runner.LOCAL_BYTES_MAX


@dataclass
class Working:
    """Work that takes `seconds` for each slice, on a clock. Pickled, so it notes the slices in a file."""

    clock: ManualClock
    seconds: float
    notes: Path
    refused: int = -1
    """A queue id."""

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        for slice_ in slices:
            self.clock.advance(self.seconds * 1000)
            if slice_.part.queue.queue_id == self.refused:
                raise SendFailed("the broker went away")
            with self.notes.open("a") as notes:
                notes.write(f"{slice_.number}\n")
            progress_files.write(SliceProgress(slice_.number, slice_.part.end))

    @property
    def order(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()]


def big_slices(queues: int, each: int) -> list[Slice]:
    """`each` slices of each queue; their numbers are in the order of the queues' offsets."""
    parts = [QueueRange(queue(q), n, n + 1, BIG) for n in range(each) for q in range(queues)]
    return [Slice(number, part) for number, part in enumerate(parts)]


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs for which Spark was started; it is ready at once."""
    started: list[str] = []

    class Starting:
        is_ready = True

        def __init__(self, job: str, work: task_runner.Work) -> None:
            started.append(job)

        def wait(self, *, needed: bool) -> InProcessSparkContext:
            return InProcessSparkContext()

    monkeypatch.setattr(task_runner, "StartingSpark", Starting)
    return started


def run_while_starting(work: Working, slices: list[Slice]) -> list[str]:
    files = ProgressFiles(work.notes.parent)
    return task_runner.run_while_starting(
        "job", slices, files, work, whole_queues=True, concurrency=2, clock=work.clock
    )


def test_short_work_is_done_without_spark(tmp_path: Path, starting: list[str]) -> None:
    work = Working(ManualClock(), seconds=1, notes=tmp_path / "notes")
    assert run_while_starting(work, big_slices(3, 4)) == []
    assert sorted(work.order) == list(range(12))
    assert starting == []


def test_long_work_is_begun_here_and_finished_by_spark(tmp_path: Path, starting: list[str]) -> None:
    work = Working(ManualClock(), seconds=9, notes=tmp_path / "notes")
    assert run_while_starting(work, big_slices(3, 4)) == []
    assert work.order[:2] == [0, 1]
    assert sorted(work.order) == list(range(12))
    assert starting == ["job"]
    for number in range(3):
        assert [each for each in work.order if each % 3 == number] == list(range(number, 12, 3))


def test_nothing_follows_a_refusal_in_its_queue(tmp_path: Path, starting: list[str]) -> None:
    work = Working(ManualClock(), seconds=0, notes=tmp_path / "notes", refused=1)
    assert run_while_starting(work, big_slices(2, 3)) == ["the broker went away"]
    assert work.order == [0, 2, 4]


def test_spark_that_cannot_start_is_reported_if_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(job: str) -> None:
        raise ModuleNotFoundError("No module named 'firearrow'")

    monkeypatch.setattr(task_runner, "context", failing)
    spark = task_runner.StartingSpark("job", refusing)
    assert spark.wait(needed=False) is None
    assert spark.is_ready
    with pytest.raises(task_runner.WorkersLackPackage):
        spark.wait(needed=True)


def unimportable(slices: Sequence[Slice], marks: ProgressFiles) -> None:
    raise ModuleNotFoundError("No module named 'firearrow'")


def test_workers_without_the_package_are_one_sentence(tmp_path: Path) -> None:
    slices = [Slice(0, QueueRange(queue(0), 0, 1))]
    with pytest.raises(
        task_runner.WorkersLackPackage, match="the executors' Python has no firearrow: install it there"
    ):
        task_runner.run(InProcessSparkContext(), [slices], ProgressFiles(tmp_path), unimportable)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.floats(1, 1e6))
def test_a_pace_is_never_exceeded(amounts: list[int], rate: float) -> None:
    clock = ManualClock(100_000)
    bucket = TokenBucket(rate, clock, clock.sleep)
    taken = 0
    for amount in amounts:
        bucket.acquire(amount)
        assert taken <= rate * (clock.elapsed + BURST_S) * 1.0001
        taken += amount
    assert clock.elapsed <= sum(amounts) / rate + 1e-6


def test_no_rate_is_no_pace() -> None:
    clock = ManualClock(100_000)
    TokenBucket(None, clock, clock.sleep).acquire(1 << 60)
    assert clock.elapsed == 0


def test_tasks_share_a_rate() -> None:
    assert RateLimits(1000, None).shared(4) == RateLimits(250, None)


def test_a_queue_faces_the_one_with_its_id() -> None:
    there = {"T": [queue(number) for number in range(4)]}
    mapping = map_queues([queue(0), queue(3)], there, lambda topic: topic)
    assert mapping.table == {queue(0): queue(0), queue(3): queue(3)}
    assert mapping.moved == []


def test_without_its_id_a_queue_goes_where_the_remainder_says() -> None:
    mapping = map_queues([queue(5)], {"U": [queue(number, "U") for number in range(4)]}, lambda _: "U")
    assert mapping.table == {queue(5): queue(1, "U")}
    assert mapping.moved == ["T@b:5 → U@b:1"]


def test_brokers_of_other_names_are_taken_by_turns() -> None:
    there = {"T": [queue(number, broker=name) for name in ("x", "y") for number in range(2)]}
    sources = [queue(number, broker=name) for name in ("a", "b", "y") for number in range(2)]
    mapping = map_queues(sources, there, lambda topic: topic)
    assert {source.broker_name: target.broker_name for source, target in mapping.table.items()} == {
        "a": "x",
        "b": "y",
        "y": "y",
    }
    assert all(source.queue_id == target.queue_id for source, target in mapping.table.items())


def test_a_queue_is_named_and_found_again() -> None:
    for each in (queue(3), MessageQueue("%DLQ%g", "b:1", 7), MessageQueue("ns%T", "b", 0)):
        assert queue_of(queue_text(each)) == each


def test_routes_keep_or_spread() -> None:
    kept = QueueRouting({queue(0): queue(9)})
    assert kept.in_order
    spread = RoundRobinRouting({"T": [queue(0), queue(1)]})
    assert not spread.in_order


def test_progress_counts_marks_and_leaves_finished_ones_alone(tmp_path: Path) -> None:
    slices = [Slice(0, QueueRange(queue(0), 10, 20)), Slice(1, QueueRange(queue(1), 0, 5))]
    marks = ProgressFiles(tmp_path)
    view = ProgressView(marks, slices)
    assert view.look() == (0, 0, 0)
    marks.write(SliceProgress(0, 20, {"messages": 8, "bytes": 800}))
    marks.write(SliceProgress(1, 3, {"messages": 3, "bytes": 30}))
    assert view.look() == (13, 11, 830)
    assert set(view.finished) == {0}
    (tmp_path / "0").unlink()
    assert view.look() == (13, 11, 830)


def test_a_rate_is_since_the_first_look() -> None:
    clock = ManualClock(100_000)
    rate = ThroughputMeter(clock)
    rate.text(1000, 5_000_000)
    clock.advance(2000)
    line = rate.text(3000, 9_000_000)
    assert re.fullmatch(r"3,000 messages, 9 MB, 1,000/s, 2 MB/s", line)


@pytest.mark.parametrize("terminal", [False, True], ids=["lines", "bar"])
def test_progress_is_painted_until_its_end(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1" if terminal else "")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    slices = [Slice(0, QueueRange(queue(0), 10, 20)), Slice(1, QueueRange(queue(1), 0, 5))]
    marks = ProgressFiles(tmp_path)
    with shown("replay", marks, slices, quiet=False):
        marks.write(SliceProgress(0, 20, {"messages": 8, "bytes": 8_000_000}))
        marks.write(SliceProgress(1, 2, {"messages": 3, "bytes": 0}))
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert ("━" in output) is terminal
    assert re.search(r"replay.* 80 %.* 11 messages, 8 MB, ", output)
    with shown("replay", marks, slices, quiet=True):
        pass
    assert capsys.readouterr().err == ""
