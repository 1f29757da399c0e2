"""A tiny run of the Spark benchmarks: every row runs and reads what was written."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import spark_store
from bench.spark_bench import GOALS, Bench, measured, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(400)
def test_every_row_gives_figures_and_goals(spark: "SparkSession", tmp_path: Path) -> None:
    store = tmp_path / "store"
    bench = Bench(spark, store, spark_store.make(store, 2 << 20), tmp_path)
    measured(bench, 1, ["read", "export", "send"])
    rows = {row["row"]: row for row in table(bench)}
    for slow, quick, _ in GOALS:
        assert rows[f"{quick} / {slow}"]["ratio"]
    assert rows["decode, millions a second"]["ratio"]
