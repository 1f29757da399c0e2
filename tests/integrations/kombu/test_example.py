"""The example for Celery runs as its users run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("celery")

from firearrow.client import LocalBroker
from tests.support.eventually import eventually

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "celery"
OUTPUT = """prices [24, 20, 30] total 74
Ann, your basket waits for you
Bob's reminder is revoked
"""


def test_the_example(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store", settings={"recallMessageEnable": "true"}) as broker:
        environment = os.environ | {"NAMESRV_ADDR": broker.name_server}
        log = tmp_path / "worker.log"
        with log.open("w") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "shop", "worker", "-l", "INFO", "-c", "2"],
                cwd=EXAMPLE,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: " ready." in log.read_text(), 90, log.read_text)
            done = subprocess.run(
                [sys.executable, "orders.py"],
                cwd=EXAMPLE,
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.stdout == OUTPUT, done.stderr + log.read_text()
        finally:
            worker.terminate()
            worker.wait(60)
