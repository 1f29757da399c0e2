"""Executors in processes of their own, without the package: told in one sentence, or sent the archive and at work."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firearrow.spark_tools.manifest import Manifest
from firearrow.spark_tools.pack import pack
from tests.spark.executors import bare_python, spark_home
from tests.spark.stores import KnownStore

CLUSTER = (
    "--master",
    "local-cluster[2,1,1024]",
    "--conf",
    "spark.executor.memory=512m",
    "--driver-memory",
    "512m",
)
COMMAND = "from firearrow.broker.cli import main; main()"
Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def submit(spark_environment: dict[str, str], tmp_path: Path) -> Submit:
    """`firearrow spark …` on a cluster of two executors whose Python lacks the package."""
    ours = {
        "PYSPARK_PYTHON": str(bare_python(tmp_path / "bare")),
        "SPARK_HOME": str(spark_home(tmp_path / "home")),
    }

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", COMMAND, "spark", *CLUSTER, *map(str, arguments)],
            env=os.environ | spark_environment | ours, cwd=tmp_path, capture_output=True, text=True, timeout=150,
            check=False,
        )  # fmt: skip

    return run


@pytest.mark.timeout(400)
def test_executors_get_the_package_by_an_archive(submit: Submit, store: KnownStore, tmp_path: Path) -> None:
    export = ("export", "--path", store.root, "--to", tmp_path / "out", "--quiet")
    without = submit(*export)
    assert without.returncode == 1, without.stdout + without.stderr
    sentence = "firearrow: the executors' Python has no firearrow: install it there, or ship it"
    assert sentence in without.stdout  # where spark-submit puts all that a driver in Python says
    packed = pack(tmp_path / "firearrow.tar.gz")
    done = submit(*packed.arguments(), *export)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = Manifest.read(tmp_path / "out")
    manifest.check_files(tmp_path / "out", contents=True)
    assert manifest.rows == len(store.messages)
    assert (
        sum(pq.read_metadata(path).num_rows for path in (tmp_path / "out").rglob("*.parquet"))
        == manifest.rows
    )
