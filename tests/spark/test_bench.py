"""The Spark benchmarks as they are started; session/test_bench.py runs every row in the session of the tests."""

import sys
from pathlib import Path

import pytest

from bench.programs import ROOT
from bench.spark_bench import GOALS
from tests.spark.programs import run_program


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_row_gives_figures_and_goals(tmp_path: Path, spark_environment: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "bench.spark_bench",
        "--mib",
        "4",
        "--rounds",
        "1",
        "--folder",
        str(tmp_path),
    ]
    done = run_program(command, spark_environment, ROOT, 200)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    for slow, quick, _ in GOALS:
        assert f"row: {quick} / {slow}" in done.stdout
    assert "row: decode, millions a second" in done.stdout
    assert list(tmp_path.iterdir()) == []
