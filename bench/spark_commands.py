"""Compares the Spark tools as users run them: `python -m bench.spark_commands`. Ratios are the result.

Commands are fresh processes with fresh targets: `whole` is from the shell, Spark's start included; `own` is what a
command reports, and what a program measures around its read and write. The rows beside Kafka's connector share one
session of `local[2]`, which is warm. `--record` appends to bench/results.ndjson.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import kafka, spark_store
from bench.measuring import quiet
from bench.programs import ROOT
from bench.results import append
from bench.servers import Server
from firearrow.client import Message, blocking
from firearrow.client.local_broker import LocalBroker

MASTER = "local[2]"
SETTINGS = {
    "spark.master": MASTER,
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
ENVIRONMENT = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
KEEPS_ALL = {"diskMaxUsedSpaceRatio": "95"}
"""The data of a bench may fill a disk beyond the default, and old segments would be deleted."""
FEW = 1000
LOG_BYTES_EACH = 1208
LIMIT_S = 1800
GOALS = (
    ("replay, source to sink: own", "replay: own", 4.0),
    ("export, df.write: whole", "export: whole", 2.0),
    ("sink, kafka tuned", "sink", 1.2),
    ("sink lz4, kafka tuned", "sink lz4", None),
    ("micro-batches, kafka", "micro-batches", 1.5),
    ("read, parquet snappy", "read", 1.0),
    ("read, parquet snappy", "scan", 1.0),
    ("tags, parquet snappy", "tags", None),
)
"""How many times as fast as the first the second must be; None: only reported."""


@dataclass
class Samples:
    """Of one row: seconds, and the target's CPU seconds."""

    messages: int
    seconds: list[float] = field(default_factory=list)
    server_cpu_s: list[float] = field(default_factory=list)


@dataclass
class Bench:
    """`found` has what was measured so far, by row."""

    store: Path
    messages: int
    work: Path
    found: dict[str, Samples] = field(default_factory=dict)
    turn: int = 0

    def fresh(self, name: str) -> Path:
        """The path of a new folder."""
        self.turn += 1
        return self.work / f"{name}-{self.turn}"

    def add(self, row: str, messages: int, seconds: float, server_cpu_s: float | None = None) -> None:
        samples = self.found.setdefault(row, Samples(messages))
        samples.seconds.append(seconds)
        if server_cpu_s is not None:
            samples.server_cpu_s.append(server_cpu_s)
        print(f"  {row}: {seconds:.2f} s", file=sys.stderr)

    # ---- commands ----

    def replay(self) -> None:
        with Target(self.fresh("target")) as target:
            report = self.fresh("report.json")
            words = ["replay", "--path", self.store, "--target", target.name_server, "--create-topics"]
            whole = self.run(spark(*words, "--checkpoint", self.fresh("checkpoint"), "--report", report))
            own = json.loads(report.read_text())["seconds"]
            self.add("replay: own", self.messages, own, target.cpu_s())
            self.add("replay: whole", self.messages, whole)

    def source_to_sink(self) -> None:
        with Target(self.fresh("target")) as target:
            began = time.perf_counter()
            own = program("replay", self.store, target.name_server)
            assert isinstance(own, float)
            self.add("replay, source to sink: own", self.messages, own, target.cpu_s())
            self.add("replay, source to sink: whole", self.messages, time.perf_counter() - began)

    def export(self) -> None:
        to = self.fresh("export")
        whole = self.run(spark("export", "--path", self.store, "--to", to))
        self.add("export: own", self.messages, json.loads((to / "_manifest.json").read_text())["seconds"])
        self.add("export: whole", self.messages, whole)
        shutil.rmtree(to)

    def written_by_spark(self) -> None:
        to, began = self.fresh("export"), time.perf_counter()
        own = program("export", self.store, to)
        assert isinstance(own, float)
        self.add("export, df.write: own", self.messages, own)
        self.add("export, df.write: whole", self.messages, time.perf_counter() - began)
        shutil.rmtree(to)

    def copy_few(self) -> None:
        """A thousand messages, then nothing."""
        source, checkpoint = self.fresh("source"), self.fresh("checkpoint")
        with LocalBroker(source) as broker, Target(self.fresh("target")) as target:
            with blocking.Producer("PG", name_server=broker.name_server) as producer:
                for number in range(FEW):
                    producer.send(Message(spark_store.TOPICS[0], b"%d" % number))
            for row in ("copy --once, 1,000 messages: own", "copy --once, nothing new: own"):
                report = self.fresh("report.json")
                words = [
                    "copy",
                    "--once",
                    "--name-server",
                    broker.name_server,
                    "--target",
                    target.name_server,
                ]
                words += ["--topics", spark_store.TOPICS[0], "--checkpoint", str(checkpoint)]
                self.run(spark(*words, "--report", report))
                self.add(row, FEW, json.loads(report.read_text())["seconds"])
        shutil.rmtree(source)

    def run(self, command: list[str]) -> float:
        """Its seconds. RuntimeError: it failed."""
        began = time.perf_counter()
        _run(command)
        return time.perf_counter() - began

    # ---- in one session ----

    def beside_kafka(self, rows: int) -> None:
        with Target(self.fresh("target")) as target, kafka.Kafka(self.fresh("kafka")) as peer:
            for topic in ("T", "L", "stream"):
                target.create_topic(topic)
            jars = {"spark.jars": kafka.connector_jars()}
            words = (rows, target.name_server, peer.address, self.fresh("checkpoints"))
            found = program("beside_kafka", *words, settings=jars)
        self.add_all(rows, found)

    def read(self) -> None:
        self.add_all(self.messages, program("readers", self.store, self.work / "parquet"))

    def add_all(self, rows: int, found: object) -> None:
        assert isinstance(found, Mapping)
        for row, seconds in found.items():
            for each in seconds:
                self.add(row, rows, each)


class Target:
    """A new broker with the store's topics; its store is deleted afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> "Target":
        self._broker = LocalBroker(self._folder, settings=KEEPS_ALL)
        self.name_server = self._broker.name_server
        for topic in spark_store.TOPICS:
            self.create_topic(topic)
        self._server = Server("firearrow", ("", 0), 0, [self._broker.process])
        self._before = self._server.cpu_s()
        return self

    def __exit__(self, *exc: object) -> None:
        self._broker.close()
        shutil.rmtree(self._folder)

    def create_topic(self, topic: str) -> None:
        with blocking.Admin(name_server=self.name_server) as admin:
            admin.create_topic(topic, spark_store.QUEUES)

    def cpu_s(self) -> float:
        """CPU seconds of the broker since it was ready."""
        return self._server.cpu_s() - self._before


def spark(*words: object) -> list[str]:
    return [str(Path(sys.executable).parent / "firearrow"), "spark", *map(str, words), "--quiet"]


def program(name: str, *words: object, settings: Mapping[str, str] | None = None) -> object:
    """What one of `spark_programs` prints."""
    given = json.dumps(SETTINGS | dict(settings or {}))
    output = _run([sys.executable, "-m", "bench.spark_programs", given, name, *map(str, words)])
    return json.loads(output.splitlines()[-1])


def _run(command: list[str]) -> str:
    """Its output. RuntimeError: it failed."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=ENVIRONMENT
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


# ---- runs ----


def measured(bench: Bench, rounds: int, wanted: list[str], kafka_rows: int) -> None:
    runs = {
        "commands": [
            bench.replay,
            bench.source_to_sink,
            bench.export,
            bench.written_by_spark,
            bench.copy_few,
        ],
        "read": [bench.read],
        "kafka": [lambda: bench.beside_kafka(kafka_rows)],
    }
    for number in range(rounds):
        for name in wanted:
            print(f"round {number + 1}/{rounds}: {name}", file=sys.stderr)
            for run in reversed(runs[name]) if number % 2 else runs[name]:
                quiet()
                try:
                    run()
                except RuntimeError as error:
                    print(f"{name} goes on without a sample: {error}", file=sys.stderr)


def table(found: Mapping[str, Samples]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, samples in found.items():
        seconds = median(samples.seconds)
        row: dict[str, object] = {"row": name, "messages": samples.messages, "s": round(seconds, 2)}
        row |= {"messages/s": round(samples.messages / seconds)}
        if samples.server_cpu_s:
            row["server cpu us/message"] = round(median(samples.server_cpu_s) / samples.messages * 1e6, 2)
        rows.append(row)
    for slow, quick, goal in GOALS:
        if slow in found and quick in found:
            ratio = median(found[slow].seconds) / median(found[quick].seconds)
            rows.append({"row": f"{quick} / {slow}", "goal": goal, "ratio": round(ratio, 2)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_commands", description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000, help="of 1 KiB, in the store")
    parser.add_argument("--kafka-rows", type=int, default=1_000_000, help="that each sink sends")
    parser.add_argument("--rounds", type=int, default=2)
    choices = ["commands", "read", "kafka"]
    parser.add_argument("--only", nargs="+", choices=choices, default=choices)
    parser.add_argument("--folder", type=Path, help="where the files go [default: the temporary folder]")
    parser.add_argument("--record", action="store_true", help="append to bench/results.ndjson")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firearrow-spark-", dir=given.folder) as folder:
        work, store = Path(folder), Path(folder) / "store"
        messages = spark_store.make(store, given.messages * LOG_BYTES_EACH)
        bench = Bench(store, messages, work)
        print(f"{messages} messages in {store}", file=sys.stderr)
        measured(bench, given.rounds, given.only, given.kafka_rows)
        rows = table(bench.found)
    for row in rows:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))
    if given.record:
        append("spark-commands", master=MASTER, rows=rows)


if __name__ == "__main__":
    main()
