"""The tutorial works, run as a user runs it: with a hundredth of its messages, and with all 200,000.

The same jobs run in tests/spark/session: replay, redrive, export, and the programs of docs/SPARK.md."""

import sys
from pathlib import Path

import pytest

from tests.spark.programs import run_program

TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "spark_tutorial.py"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("arguments", "orders"), [(["2000"], 2_000), ([], 200_000)])
def test_the_tutorial(
    arguments: list[str], orders: int, spark_environment: dict[str, str], tmp_path: Path
) -> None:
    done = run_program([sys.executable, str(TUTORIAL), *arguments], spark_environment, tmp_path, 220)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        f"{orders:,} orders sent",
        f"replayed: {orders // 2}\n",
        "bad orders, sent twice: 24\n",
        f"exported: {orders + orders // 2 + 24}\n",
    ):
        assert line in done.stdout, done.stdout + done.stderr
