"""Tests that a way of FIREARROW_TEST_WAY skips by name exist, so that a renamed one is not skipped for nothing."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.ways import CANNOT_HOLD

ROOT = Path(__file__).parents[2]


def test_skipped_tests_exist() -> None:
    names = sorted({name for reasons in CANNOT_HOLD.values() for name in reasons})
    environment = {key: text for key, text in os.environ.items() if key != "FIREARROW_TEST_WAY"}
    files = sorted({name.partition("::")[0] for name in names})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(names) - set(done.stdout.splitlines()) == set()
