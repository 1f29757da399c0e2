"""How fast the console is with 1,000 topics and 500 groups, and what it costs: `python -m tests.console.speed`.

The child of a broker (`--console`): seconds of its first page, milliseconds and CPU of further ones, its memory, and
the broker's latency of sends without and with ten visitors who load a live page each second. `--small` takes seconds.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from firearrow.client import blocking
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message, MessageQueue
from tests.console.running import Visitor, name_server
from tests.support.broker_process import WAYS, BrokerProcess

PAGES = (
    "/",
    "/topics",
    "/topics?page=9",
    "/topics/t1",
    "/topics/t1/messages",
    "/groups",
    "/groups/g1",
    "/dead-letters",
    "/waiting",
    "/transactions",
    "/ordered?group=g1",
    "/clients",
    "/config",
    "/log",
)
LIVE = ("/?live=1", "/topics/t1?live=1", "/groups/g1?live=1", "/log?live=1")
LOADS, VISITORS = 8, 10
AT_ONCE = 32


async def fill(where: str, topics: int, groups: int) -> None:
    """Each group has read one message of a topic of its own, of three."""
    async with Admin(where) as admin:
        limit = asyncio.Semaphore(AT_ONCE)

        async def make(number: int) -> None:
            async with limit:
                await admin.create_topic(f"t{number}", 4)

        async def read(number: int) -> None:
            async with limit:
                await admin.create_group(f"g{number}")
                broker = next(iter(await admin.calls.masters()))
                for queue in range(4):
                    at = MessageQueue(f"t{number % topics}", broker, queue)
                    await admin.update_offset(f"g{number}", at, 0)

        await asyncio.gather(*(make(number) for number in range(topics)))
        await asyncio.gather(*(read(number) for number in range(groups)))


def send(where: str, topics: int) -> None:
    with blocking.Producer("speed", name_server=where) as producer:
        for number in range(topics * 3):
            producer.send(Message(f"t{number % topics}", b"x" * 100))


class Child:
    """The console's process."""

    def __init__(self, broker: BrokerProcess) -> None:
        pid = broker.process.pid
        [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._folder = Path(f"/proc/{child}")

    def memory_mb(self) -> float:
        found = re.search(r"VmHWM:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def cpu_s(self) -> float:
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latencies(where: str, seconds: float) -> list[float]:
    """Of single sends, one each 2 ms, in ms."""
    found = []
    with blocking.Producer("watched", name_server=where) as producer:
        producer.send(Message("t1", b"first"))
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            producer.send(Message("t1", b"x" * 100))
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(max(0.002 - (time.perf_counter() - began), 0))
    return found


@contextmanager
def visitors(url: str) -> Iterator[list[int]]:
    """Ten, each of whom loads a live page once a second. Counts what was answered."""
    answered: list[int] = []
    until: list[float] = []

    def watch(number: int) -> None:
        with Visitor(url) as visitor:
            while not until:
                began = time.perf_counter()
                answered.append(visitor.get(LIVE[number % len(LIVE)]).status_code)
                time.sleep(max(1 - (time.perf_counter() - began), 0))

    with ThreadPoolExecutor(VISITORS) as pool:
        for number in range(VISITORS):
            pool.submit(watch, number)
        try:
            yield answered
        finally:
            until.append(0)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main(arguments: list[str]) -> dict[str, float]:
    """The figures by name, which are printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="30 topics, 10 groups, 2 s of sends")
    small = parser.parse_args(arguments).small
    topics, groups, seconds = (30, 10, 2.0) if small else (1000, 500, 20.0)
    figures: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="firearrow-speed-") as made,
        BrokerProcess(
            Path(made) / "store",
            *("--console", "127.0.0.1:0"),
            environment={"XDG_STATE_HOME": made},
            way=WAYS["engine"],
        ) as broker,
    ):
        assert broker.process.stdout is not None
        url, where = broker.process.stdout.readline().split()[-1], name_server(broker)
        asyncio.run(fill(where, topics, groups))
        send(where, topics)
        began = time.perf_counter()
        httpx.get(f"{url}/", timeout=60).raise_for_status()
        figures["first page, s"] = time.perf_counter() - began
        child = Child(broker)
        figures["first page, CPU s"] = child.cpu_s()
        with Visitor(url) as visitor:
            for path in PAGES:
                times, cpu_s = [], child.cpu_s()
                for _ in range(LOADS):
                    time.sleep(0 if small else 1.6)  # pages share nothing any more
                    began = time.perf_counter()
                    visitor.page(path)
                    times.append((time.perf_counter() - began) * 1000)
                figures[f"{path}, ms"] = statistics.median(times)
                figures[f"{path}, CPU ms"] = (child.cpu_s() - cpu_s) * 1000 / LOADS
        alone = latencies(where, seconds)
        with visitors(url) as answered:
            watched = latencies(where, seconds)
        assert set(answered) == {200}
        figures["p99 of sends alone, ms"] = percentile(alone, 0.99)
        figures["p99 of sends with visitors, ms"] = percentile(watched, 0.99)
        figures["median of sends alone, ms"] = statistics.median(alone)
        figures["median of sends with visitors, ms"] = statistics.median(watched)
        figures["pages answered per second"] = len(answered) / seconds
        figures["memory at most, MB"] = child.memory_mb()
    for name, value in figures.items():
        print(f"{name:40} {value:10.2f}")
    return figures


if __name__ == "__main__":
    main(sys.argv[1:])
