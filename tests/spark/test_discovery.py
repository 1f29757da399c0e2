"""Spark finds the format by itself if `pyspark_firearrow` is installed, at no cost for others."""

import os
import subprocess
import sys

from tests.spark.stores import KnownStore

COUNT = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
frame = builder.getOrCreate().read.format("rocketmq").option("topic", "Orders").load(sys.argv[1])
print("rows:", frame.count())
"""
IMPORTS = """
import sys
from firearrow.spark_tools.discovery import DefaultSource

assert DefaultSource.name() == "rocketmq"
print(sorted(name for name in sys.modules if name.startswith(("firearrow._native", "firearrow.client", "pyarrow"))))
"""


def test_the_format_is_found_without_a_call(
    store: KnownStore, installed_environment: dict[str, str], spark_settings: dict[str, str]
) -> None:
    settings = [f"{name}={value}" for name, value in spark_settings.items()]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(store.root), *settings],
        env=os.environ | installed_environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert f"rows: {len(store.of('Orders'))}" in done.stdout, done.stderr


def test_other_sources_import_almost_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
