"""copy --once without Spark: micro-batches are planned and sent here, and recorded in Spark's checkpoint."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext

from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.checkpoint import InvalidCheckpoint, Slice
from firearrow.spark_tools.jobs.copy_ import cli
from firearrow.spark_tools.jobs.stream_log import StreamLog
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from tests.spark.damaged_store import COUNT, QUEUE, fill
from tests.spark.in_process_context import InProcessSparkContext
from tests.spark.replaying import Job, Ran, bodies
from tests.support.stores import open_store

Copy = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(job: str) -> SparkContext:
        raise AssertionError("Spark is not needed")

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(task_runner, "context", never)


@pytest.fixture
def copy(target: LocalBroker, root: Path, tmp_path: Path) -> Copy:
    job = Job(cli, tmp_path, InProcessSparkContext())
    words = (
        "--path",
        f"s={root}",
        "--topics",
        "T",
        "--target",
        target.name_server,
        "--create-topics",
        "--once",
    )
    return lambda *more, quiet=False: job(*words, *more, quiet=quiet)


def test_all_is_copied_in_micro_batches_and_then_nothing(
    copy: Copy, target: LocalBroker, root: Path, tmp_path: Path
) -> None:
    first = copy("--batch-messages", "60")
    assert first.report["totals"]["messages"] == 2 * COUNT
    assert first.err.splitlines()[-1] == (
        "copy: 4 micro-batches, 200 messages, 0 messages behind in 2 queues, at most 0 in one"
    )
    log = StreamLog(tmp_path / "checkpoint" / "stream")
    assert log.last_planned() == log.last_committed() == 3
    assert log.end(3)[QUEUE] == COUNT
    again = copy()
    assert (again.code, again.report["totals"], again.err) == (0, {}, "")
    with open_store(root) as store:
        fill(store, 5, COUNT)
    assert copy(quiet=True).report["totals"]["messages"] == 10
    assert bodies(target.store, "T") == {
        number: [b"%d of %d" % (n, number) for n in range(COUNT + 5)] for number in (0, 1)
    }


def test_a_micro_batch_that_was_not_committed_is_repeated_from_its_progress(
    copy: Copy, target: LocalBroker, root: Path, tmp_path: Path
) -> None:
    copy()
    (tmp_path / "checkpoint" / "stream" / "commits" / "0").unlink()
    with open_store(root) as store:
        fill(store, 5, COUNT)
    assert copy().report["totals"]["messages"] == 2 * COUNT + 10
    assert [len(found) for found in bodies(target.store, "T").values()] == [COUNT + 5] * 2


def test_offsets_of_another_version_are_refused(tmp_path: Path) -> None:
    log = StreamLog(tmp_path)
    assert (log.last_planned(), log.last_committed()) == (-1, -1)
    log.plan(0, StreamOffsets({QUEUE: 7}))
    assert log.end(0) == {QUEUE: 7}
    for text in ("v2\n{}\n{}", "v1\n{}", "v1\n{}\n{}\n{}", "v1\n{}\n[1]", ""):
        (tmp_path / "offsets" / "0").write_text(text)
        with pytest.raises(InvalidCheckpoint, match=r"offsets/0 cannot be used: .*--checkpoint"):
            log.end(0)


def test_spark_is_for_more_than_a_little() -> None:
    little = [Slice(0, QueueRange(QUEUE, 0, 9, task_runner.LOCAL_BYTES_MAX // 2))]
    assert task_runner.context_for("copy", little) is None
    with pytest.raises(AssertionError, match="Spark is not needed"):
        task_runner.context_for("copy", little * 2)
