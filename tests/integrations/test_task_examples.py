"""The examples of taskiq and dramatiq, run as their first lines state."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("taskiq")
pytest.importorskip("dramatiq")

from tests.interop.peers import Peer
from tests.support.command_line import here
from tests.support.eventually import eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WITHIN_S = 60
LINES = [
    *(f"bill order {number}: {euros} euros" for number, euros in ((1, "9.90"), (2, "25.00"), (3, "3.50"))),
    *(f"thanks for order {number}" for number in (1, 2, 3)),
    "charged order 1",
]


@contextmanager
def running(framework: str, name_server: str, output: Path, *words: str) -> Iterator[None]:
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", framework, *words],
            cwd=EXAMPLES / framework,
            env=os.environ | {"NAMESRV_ADDR": name_server},
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def send(framework: str, name_server: str) -> str:
    done = subprocess.run(
        [sys.executable, "send.py"],
        cwd=EXAMPLES / framework,
        env=os.environ | {"NAMESRV_ADDR": name_server},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def all_printed(output: Path, *further: str) -> None:
    def printed() -> bool:
        text = output.read_text()
        return all(line in text for line in (*LINES, *further))

    eventually(printed, WITHIN_S, output.read_text)


def test_taskiq(firearrow_site: Peer, tmp_path: Path) -> None:
    name_server, output = firearrow_site.name_server, tmp_path / "output"
    with running("taskiq", name_server, output, "worker", "shop:broker", "--workers", "1"):
        assert "4 tasks sent" in send("taskiq", name_server)
        with running("taskiq", name_server, tmp_path / "scheduler", "scheduler", "shop:scheduler"):
            all_printed(output, "stock counted")


def test_dramatiq(firearrow_site: Peer, tmp_path: Path) -> None:
    name_server, output = firearrow_site.name_server, tmp_path / "output"
    with running("dramatiq", name_server, output, "shop", "--processes", "1", "--threads", "4"):
        assert "5 messages sent" in send("dramatiq", name_server)
        all_printed(output)
        eventually(lambda: here("dlq", "show", "shop-bills", name_server=name_server).lines, WITHIN_S)
        first = output.read_text().count("this order cannot be read")
        receipts = ("--receipts", str(tmp_path / "receipts"))
        here("dlq", "redrive", "shop-bills", "--yes", *receipts, name_server=name_server).succeeded()
        eventually(lambda: output.read_text().count("this order cannot be read") > first, WITHIN_S)
