"""Executors in separate processes, without the package: one sentence, or they get the archive and run."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.export_manifest import ExportManifest
from firearrow.spark_tools.pack import LIBRARY, Packed
from tests.spark.executors import bare_python
from tests.spark.programs import run_program
from tests.spark.replaying import bodies
from tests.spark.stores import KnownStore

SMALL = ("--conf", "spark.executor.memory=512m", "--driver-memory", "512m")
ONE, TWO = (("--master", f"local-cluster[{count},1,1024]", *SMALL) for count in (1, 2))
PROGRAM = Path(__file__).with_name("clustered.py")
COMMAND = "from firearrow.client.cli.main import main; main()"
Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def submit(spark_environment: dict[str, str], tmp_path: Path) -> Submit:
    """`firearrow spark …` on a cluster of one executor whose Python lacks the package."""
    ours = {"PYSPARK_PYTHON": str(bare_python(tmp_path / "bare"))}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_program(
            [sys.executable, "-c", COMMAND, "spark", *ONE, *map(str, arguments)],
            spark_environment | ours,
            tmp_path,
        )

    return run


SENTENCE = "firearrow: the executors' Python has no firearrow: install it there, or ship it"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_copy_says_so_too_if_executors_lack_the_package(
    submit: Submit, store: KnownStore, broker: LocalBroker
) -> None:
    target = ("--target", broker.name_server, "--create-topics")
    ran = submit("copy", "--path", store.root, *target, "--once", "--quiet")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert SENTENCE in ran.stdout  # where spark-submit writes all output of a driver in Python


@pytest.mark.timeout(400)
def test_an_export_says_so_if_executors_lack_the_package(
    submit: Submit, store: KnownStore, tmp_path: Path
) -> None:
    without = submit("export", "--path", store.root, "--to", tmp_path / "out", "--quiet")
    assert without.returncode == 1, without.stdout + without.stderr
    assert SENTENCE in without.stdout


@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_export_gets_the_package_by_an_archive(
    submit: Submit, packed: Packed, store: KnownStore, tmp_path: Path
) -> None:
    done = submit(*packed.arguments(), "export", "--path", store.root, "--to", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = ExportManifest.read(tmp_path / "out")
    manifest.check_files(tmp_path / "out", contents=True)
    assert manifest.rows == len(store.messages)
    assert (
        sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").rglob("*.parquet"))
        == manifest.rows
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["archive", pytest.param("installed", marks=pytest.mark.long)])
def test_executors_read_a_table_and_replay_it(
    way: str,
    spark_environment: dict[str, str],
    packed: Packed,
    store: KnownStore,
    fresh_broker: LocalBroker,
    tmp_path: Path,
) -> None:
    environment = os.environ | spark_environment | {"PYTHONSAFEPATH": "1"}
    submit = Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    options: tuple[str, ...] = ()
    if way == "archive":
        options = packed.arguments()
        with tarfile.open(packed.path) as archive:  # the driver plans tables by the same interpreter
            archive.extractall(tmp_path / LIBRARY, filter="data")
        environment |= {"PYSPARK_PYTHON": str(bare_python(tmp_path / "bare")), "PYTHONPATH": LIBRARY}
    arguments = store.root, fresh_broker.name_server, tmp_path / "checkpoint"
    done = run_program([submit, *TWO, *options, PROGRAM, *arguments], environment, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = orjson.loads(done.stdout.splitlines()[-1])
    known = {(each.queue.queue_id, each.queue_offset, each.unique_id) for each in store.of("Orders")}
    assert {tuple(row) for row in result["rows"]} == known
    assert len(result["rows"]) == len(known)
    assert result["code"] == 0
    assert bodies(fresh_broker.store, "Orders") == bodies(store.root, "Orders")
