"""docs/CLIENT.md's examples run as printed, each as a program with its output, or as a test of the pytest plugin."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.fork_server import run_forked

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/CLIENT.md"
PROGRAM = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)


def examples() -> list[tuple[str, str]]:
    return [(match[1], match[2] or "") for match in PROGRAM.finditer(DOCUMENT.read_text("utf-8"))]


def test_every_object_has_an_example() -> None:
    text = "".join(program for program, _ in examples())
    for name in ("Producer(", "PushConsumer(", "PullConsumer(", "PopConsumer(", "Admin(", "client.blocking"):
        assert name in text


def test_the_programs_print_the_documented_output(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        environment = os.environ | {"NAMESRV_ADDR": "{}:{}".format(*broker.name_server)}
        for program, output in examples():
            if "def test_" in program:
                continue
            done = run_forked("-c", program, environment=environment, timeout=90)
            assert done.returncode == 0, program + done.stderr
            assert done.stdout == output, program + done.stderr


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    [example] = [program for program, _ in examples() if "def test_" in program]
    (tmp_path / "test_orders.py").write_text(example, "utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
