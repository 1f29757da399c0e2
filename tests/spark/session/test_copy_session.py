"""copy through real queries of Spark: its refusals are one sentence, what is gone is counted."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.jobs.copy_ import cli
from tests.spark import running
from tests.spark.damaged_store import COUNT, QUEUE, fill, opened
from tests.spark.replaying import Ran, bodies
from tests.support.stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Copy = Callable[..., Ran]


@pytest.fixture
def copy(spark: "SparkSession", target: LocalBroker, tmp_path: Path) -> Copy:
    """`copy(*arguments)`: once, to the target, always with the same checkpoint."""

    def run(*arguments: object) -> Ran:
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        common = (
            "--target",
            target.name_server,
            "--create-topics",
            "--once",
            "--quiet",
            "--report",
            report,
            "--checkpoint",
            tmp_path / "checkpoint",
        )
        ran = running.run(cli, *arguments, *common)
        return Ran(*ran, orjson.loads(report.read_bytes()) if report.exists() else {})

    return run


def let_expire(root: Path, count: int) -> int:
    """Delete the first files of the log; the first remaining offset of T."""
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()
    with opened(root) as reader:
        return reader.bounds([QUEUE])[QUEUE][0]


@pytest.mark.timeout(400)
def test_what_retention_took_before_it_was_copied_ends_it_or_is_counted(
    copy: Copy, target: LocalBroker, root: Path
) -> None:
    asked = ("--path", f"s={root}", "--topics", "T")
    assert copy(*asked).report["totals"]["messages"] == 2 * COUNT
    with open_store(root) as store:
        fill(store, 2 * COUNT, COUNT)
    files = len(list((root / "commitlog").iterdir()))
    first = let_expire(root, files // 2)
    assert first > COUNT
    ended = copy(*asked)
    assert ended.code == 1
    assert f"T@s:0[{COUNT}..{first})" in ended.err
    went_on = copy(*asked, "--no-fail-on-data-loss")
    assert went_on.code == 0, went_on.err
    totals, gone = went_on.report["totals"], f"T@s:0[{COUNT}..{first}): expired: the queue begins at {first}"
    assert went_on.report["lost"][gone] == first - COUNT
    assert totals["messages"] + totals["lost"] == 2 * 2 * COUNT
    assert totals["lost_ranges"] == len(went_on.report["lost"]) == 2
    assert sum(map(len, bodies(target.store, "T").values())) == 2 * COUNT + totals["messages"]


def test_a_folder_that_is_no_store_is_one_sentence(copy: Copy, tmp_path: Path) -> None:
    ran = copy("--path", tmp_path / "no-store", "--pattern", ".*")
    assert ran.code == 1
    assert ran.err.startswith(f"firearrow: {tmp_path / 'no-store'} is not a folder")
    assert ran.err.count("\n") == 1


def test_a_topic_that_is_not_there_is_one_sentence(copy: Copy, root: Path) -> None:
    ran = copy("--path", root, "--topics", "Nothing")
    assert ran.code == 1
    assert "Nothing" in ran.err
    assert ran.err.startswith("firearrow: ")
    assert ran.err.count("\n") == 1


@pytest.mark.timeout(400)
def test_a_topic_that_was_recreated_is_copied_from_its_first_message(copy: Copy, target: LocalBroker) -> None:
    asked = ("--name-server", target.name_server, "--topics", "again", "--to-topic", "again=copied")
    with (
        blocking.Admin(name_server=target.name_server) as admin,
        blocking.Producer("again", name_server=target.name_server) as producer,
    ):
        for name, count in (("old", 10), ("new", 4)):
            admin.create_topic("again", 1)
            for number in range(count):
                producer.send(Message("again", f"{name} {number}".encode()))
            ran = copy(*asked)
            assert ran.code == 0, ran.err
            assert (ran.report["lost"], ran.report["totals"]["messages"]) == ({}, count)
            admin.delete_topic("again")
    assert "again@s:0: the topic was deleted and recreated" in "".join(ran.report["notes"])
    expected = [
        f"{name} {number}".encode() for name, count in (("old", 10), ("new", 4)) for number in range(count)
    ]
    assert bodies(target.store, "copied") == {0: expected}
