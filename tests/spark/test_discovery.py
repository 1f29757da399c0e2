"""Spark finds the format by itself if `pyspark_firearrow` is installed, at no cost for others; workers end quietly."""

import os
import subprocess
import sys

import pytest

from bench import spark_store
from firearrow.spark_tools.sessions import SETTINGS
from tests.spark.stores import KnownStore

PROGRAM = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for setting in sys.argv[3:]:
    builder = builder.config(*setting.split("=", 1))
reader = builder.getOrCreate().read.format("rocketmq")
large = reader.load(sys.argv[2])
print("limited:", large.limit(5).count(), len(large.take(3)))
print("rows:", reader.option("topic", "Orders").load(sys.argv[1]).count())
"""
IMPORTS = """
import sys
from firearrow.spark_tools.discovery import DefaultSource

assert DefaultSource.name() == "rocketmq"
print(sorted(name for name in sys.modules if name.startswith(("firearrow._native", "firearrow.client", "pyarrow"))))
"""


@pytest.fixture(scope="module")
def done(
    store: KnownStore,
    installed_environment: dict[str, str],
    spark_settings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> subprocess.CompletedProcess[str]:
    """The program with the known store, and with one whose rows the workers' sockets do not hold."""
    large = tmp_path_factory.mktemp("large") / "store"
    spark_store.make(large, 4 << 20)
    settings = [f"{name}={value}" for name, value in {**SETTINGS, **spark_settings}.items()]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(store.root), str(large), *settings],
        env=os.environ | installed_environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(400)
def test_the_format_is_found_without_a_call(
    done: subprocess.CompletedProcess[str], store: KnownStore
) -> None:
    assert f"rows: {len(store.of('Orders'))}" in done.stdout, done.stderr


@pytest.mark.timeout(400)
def test_a_limit_ends_workers_quietly(done: subprocess.CompletedProcess[str]) -> None:
    """Their socket holds less than they have to write."""
    assert "limited: 5 3" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def test_other_sources_import_almost_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
