"""1,000 topics with 250 groups each: what the commands that look at all of them take.

`python -m tests.doctor.large_cluster` prints the numbers of each command.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import PROGRAM
from tests.support.requests import send

TOPICS, GROUPS, QUEUES = 1000, 250, 4
COMMANDS = "group list --long", "top --once", "doctor"


class Measured(NamedTuple):
    """Seconds of CPU time of the command and of the broker, seconds that it took, and milliseconds of the slowest send
    meanwhile."""

    command_s: float
    broker_s: float
    took_s: float
    slowest_ms: float


def make_tables(store: Path) -> None:
    """Topics, groups, and an offset of each group in each queue, as a broker writes them."""
    topics, groups = (
        [f"{kind}{number:04}" for number in range(count)]
        for kind, count in (("Topic", TOPICS), ("Group", GROUPS))
    )
    offsets = {str(queue): 0 for queue in range(QUEUES)}
    config = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    tables: dict[str, dict[str, object]] = {
        "topics": {"topicConfigTable": {topic: {"topicName": topic, **config} for topic in topics}},
        "subscriptionGroup": {"subscriptionGroupTable": {group: {"groupName": group} for group in groups}},
        "consumerOffset": {
            "offsetTable": {f"{topic}@{group}": offsets for topic in topics for group in groups}
        },
    }
    folder = store / "config"
    folder.mkdir(parents=True)
    for name, table in tables.items():
        (folder / f"{name}.json").write_bytes(orjson.dumps(table))


@contextmanager
def large_cluster(folder: Path) -> Iterator[BrokerProcess]:
    """Each topic has a message, which no group has read."""
    make_tables(folder / "store")
    with BrokerProcess(folder / "store", wait_s=120) as broker:
        with broker.connect() as connection:
            for topic in range(TOPICS):
                assert send(connection, f"Topic{topic:04}", b"x").code == 0
        yield broker


def measure(broker: BrokerProcess, connection: ClientSocket, command: str) -> Measured:
    assert broker.name_server is not None
    name_server = "{}:{}".format(*broker.name_server)
    before_s, broker_s, began, slowest_s = _children_s(), _cpu_s(broker), time.perf_counter(), 0.0
    words = *PROGRAM, *command.split(), "--namesrv", name_server
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            sent = time.perf_counter()
            assert send(connection, "Topic0000", b"x").code == 0
            slowest_s = max(slowest_s, time.perf_counter() - sent)
            time.sleep(0.001)
    took_s = time.perf_counter() - began
    return Measured(_children_s() - before_s, _cpu_s(broker) - broker_s, took_s, slowest_s * 1000)


def _children_s() -> float:
    """CPU time of processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _cpu_s(broker: BrokerProcess) -> float:
    """CPU time of the loop's thread."""
    pid = broker.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        large_cluster(Path(folder)) as broker,
        broker.connect() as connection,
    ):
        for command in COMMANDS:
            print(command, measure(broker, connection, command), file=sys.stdout)


if __name__ == "__main__":
    main()
