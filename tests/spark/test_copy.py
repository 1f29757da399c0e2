"""copy as a process: it runs while messages arrive, SIGTERM ends it cleanly, and the same command resumes."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from tests.spark.programs import run_program
from tests.spark.replaying import bodies
from tests.spark.stores import BROKER, SETTINGS
from tests.spark.waiting import POLL_S, await_some

PROGRAM = Path(__file__).resolve().parents[2] / "spark_tools" / "jobs" / "copy_.py"
END_S = 60


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    roots = [tmp_path / name / BROKER for name in ("from", "to")]
    for root in roots:
        root.parent.mkdir()
    with (
        LocalBroker(roots[0], settings=SETTINGS) as source,
        LocalBroker(roots[1], settings=SETTINGS) as target,
    ):
        yield source, target


def send(broker: LocalBroker, first: int, count: int) -> None:
    with blocking.Producer("copied", name_server=broker.name_server) as producer:
        for number in range(first, first + count):
            producer.send(Message("T", b"%05d" % number), queue=MessageQueue("T", BROKER, number % 3))


@pytest.mark.timeout(400)
def test_a_copy_follows_its_source_ends_on_sigterm_and_goes_on_where_it_was(
    clusters: tuple[LocalBroker, LocalBroker], spark_environment: dict[str, str], tmp_path: Path
) -> None:
    source, target = clusters
    with blocking.Admin(name_server=source.name_server) as admin:
        admin.create_topic("T", 3)
    with blocking.Admin(name_server=target.name_server) as admin:
        admin.create_topic("T", 3)
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        str(PROGRAM),
        "--name-server",
        source.name_server,
        "--topics",
        "T",
        "--target",
        target.name_server,
        "--checkpoint",
        str(tmp_path / "checkpoint"),
        "--report",
        str(report),
    ]
    environment = os.environ | spark_environment
    send(source, 0, 60)
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
        try:
            await_within(running, target, 60)
            send(source, 60, 30)
            await_within(running, target, 90)
            await_line(
                running,
                tmp_path / "log",
                r"copy: \d+ micro-batches, 90 messages, 0 messages behind in 3 queues",
            )
            running.send_signal(signal.SIGTERM)
            assert running.wait(END_S) == 0, (tmp_path / "log").read_text()
        finally:
            running.kill()
            running.wait()
    assert orjson.loads(report.read_bytes())["totals"]["messages"] == 90
    send(source, 90, 15)
    assert copied_once(command, environment, tmp_path)["messages"] == 15
    assert bodies(target.store, "T") == bodies(source.store, "T")


def copied_once(command: list[str], environment: dict[str, str], folder: Path) -> dict[str, int]:
    """The totals of a run that ends by itself."""
    done = run_program([*command, "--once"], environment, folder, 200)
    assert done.returncode == 0, done.stderr
    totals: dict[str, int] = orjson.loads((folder / "report.json").read_bytes())["totals"]
    return totals


def await_within(running: "subprocess.Popen[bytes]", target: LocalBroker, count: int) -> None:
    """Wait until `count` have arrived, while the copy runs."""
    while running.poll() is None:
        try:
            return await_some(target.name_server, "T", count, within_s=1)
        except AssertionError:
            continue
    raise AssertionError(f"the copy ended with {running.returncode}")


def await_line(running: "subprocess.Popen[bytes]", log: Path, line: str) -> None:
    """Wait for this output, while the copy runs."""
    while not re.search(line, log.read_text()):
        assert running.poll() is None, log.read_text()
        time.sleep(POLL_S)
