"""The tutorial works with its 200,000 messages, run as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "spark_tutorial.py"
OUTPUT = (
    "200,000 orders sent",
    "replayed: 100000",
    "bad orders, sent twice: 24",
    "exported: 300024",
)


@pytest.mark.timeout(400)
def test_the_tutorial(spark_environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TUTORIAL)],
        env=os.environ | spark_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in OUTPUT:
        assert line in done.stdout, done.stdout + done.stderr
