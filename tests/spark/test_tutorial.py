"""The tutorial does what it says, run as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).resolve().parents[2] / "examples" / "spark_tutorial.py"
SAID = (
    "3,000 orders sent",
    "replayed: 1500",
    "bad orders, sent once and once more: 24",
    "exported: 4524",
)


def test_the_tutorial(spark_environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TUTORIAL), "3000"], env=os.environ | spark_environment, cwd=tmp_path,
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for line in SAID:
        assert line in done.stdout, done.stdout + done.stderr
