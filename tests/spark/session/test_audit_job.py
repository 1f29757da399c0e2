"""The audit as users run it: through Spark, with its exit code, its report and its tables."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from firearrow.spark_tools.base.errors import InvalidOption, StoreUnreadable
from firearrow.spark_tools.jobs.audit import audit as job
from firearrow.spark_tools.jobs.audit.audit import CheckArguments
from firearrow.spark_tools.jobs.audit.spark_executor import AuditTask
from firearrow.spark_tools.jobs.audit.summary import kind_of
from firearrow.spark_tools.jobs.task_runner import TaskRefused
from tests.spark.stores import TOPICS, Golden, KnownStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., int]


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path) -> Run:
    """`run(*arguments)`: the exit code of `audit … --report report`."""

    def run(*arguments: object) -> int:
        words = [*map(str, arguments), "--report", str(tmp_path / "report"), "--quiet"]
        return job.cli(words)

    return run


def read_report(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "report" / "audit.json").read_bytes())
    return found


def rows(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(tmp_path / "report" / f"{name}.parquet").to_pylist()
    return found


def test_stores_without_damage_are_clean(
    run: Run, golden_clean: Golden, store: KnownStore, tmp_path: Path
) -> None:
    assert run("--path", golden_clean.root, "--path", store.root, "--duplicates") == 0
    document = read_report(tmp_path)
    assert document["clean"] is True
    assert [each["name"] for each in document["stores"]] == [golden_clean.root.name, store.root.name]
    assert rows(tmp_path, "findings") == []
    counted = {row["topic"]: row["messages"] for row in rows(tmp_path, "counts") if row["by"] == "topic"}
    assert {topic: counted[topic] for topic in TOPICS} == {topic: len(store.of(topic)) for topic in TOPICS}
    lag = {(row["group"], row["topic"], row["queue_id"]): row["offset"] for row in rows(tmp_path, "lag")}
    assert lag["CG_PULL", "GoldenPlain", 2] == 0
    assert "<svg" in (tmp_path / "report" / "audit.html").read_text("utf-8")
    keys = Counter(
        (topic, each["properties"].get("UNIQ_KEY"))
        for topic, queue in golden_clean.queues()
        for each in queue["messages"]
        if kind_of(topic) == "messages"
    )
    doubles = [count for (_, key), count in keys.items() if count > 1 and key]
    assert document["duplicates"]["keys"] == len(doubles)
    assert document["duplicates"]["surplus"] == sum(doubles) - len(doubles)


def test_damage_is_an_exit_code_and_a_row(run: Run, golden_copy: Golden, tmp_path: Path) -> None:
    path = golden_copy.root / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(90)
        byte = file.read(1)
        file.seek(90)
        file.write(bytes([byte[0] ^ 1]))
    assert run("--path", golden_copy.root) == 1
    [row] = rows(tmp_path, "findings")
    assert (row["kind"], row["file"], row["position"]) == ("bad CRC", str(path), 0)
    assert read_report(tmp_path)["stores"][0]["findings"]["totals"] == {"bad CRC": 1}
    assert run("--path", golden_copy.root, "--no-crc", "--no-index") == 0


def test_a_folder_that_is_no_store_is_one_sentence(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--path", tmp_path) == 1
    assert "is not a store: it has no folder commitlog" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "--path: the folder of a store is needed"),
        ({"path": ["x"], "index_slots": -1}, "--index-slots: -1 is not within"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        CheckArguments(**given).check()


@pytest.mark.parametrize("levels", ["", "1", "1x", "s", "1s 2y", "1s 99999999999s"])
def test_delay_levels_are_checked(levels: str) -> None:
    with pytest.raises(InvalidOption, match="--delay-levels"):
        CheckArguments(delay_levels=levels).delays_s()


def test_delay_levels_are_seconds() -> None:
    assert CheckArguments(delay_levels="1s 2m 3h 1d").delays_s() == (1, 120, 10800, 86400)
    assert CheckArguments().delays_s() == (), "they are not known"


def test_what_a_worker_refuses_comes_back_as_a_sentence() -> None:
    class Counted:
        value = 0

        def add(self, term: int) -> None:
            self.value += term

    def refusing(task: str) -> str:
        raise StoreUnreadable(f"{task} may not be read")

    counted = Counted()
    assert AuditTask(refusing, counted)(("x", 5)) == TaskRefused("x may not be read")  # type: ignore[arg-type]
    assert AuditTask(str.upper, counted)(("x", 7)) == "X"  # type: ignore[arg-type]
    assert counted.value == 7
