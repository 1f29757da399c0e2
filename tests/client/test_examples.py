"""Each example runs as a user runs it, and prints what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTPUT = {
    "worker_with_retries.py": "all 14 orders handled",
    "batch.py": "in batches: 2000 messages",
    "request_reply.py": "1+2+3+4 = 10",
    "broadcast_cache.py": "3 caches hold 100 prices each",
    "transaction.py": "paid: ['order 1', 'order 3']",
    "fastapi_service.py": "received: ['book', 'lamp', 'pen']",
}
ARGUMENTS = {"batch.py": ["2000"]}


def test_every_example_is_run() -> None:
    of_spark = set(EXAMPLES.glob("spark_*.py"))  # tests/spark runs them
    assert {path.name for path in set(EXAMPLES.glob("*.py")) - of_spark} == set(OUTPUT)


@pytest.mark.parametrize("name", sorted(OUTPUT))
def test_an_example(name: str, name_server: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *ARGUMENTS.get(name, [])],
        env=os.environ | {"NAMESRV_ADDR": name_server},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert OUTPUT[name] in done.stdout, done.stdout + done.stderr
