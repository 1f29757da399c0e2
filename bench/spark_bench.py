"""Compares the Spark tools with plain Spark in one session: `python -m bench.spark_bench`.

Ratios are the result.

One store of 1-KiB messages, `local[2]`, a FireArrow broker on the same machine. Rows that are compared run
one after the other, each time in the opposite order. A row is the median of its samples, a ratio the median
of the ratios of adjacent samples, since the machine's speed changes within minutes. Measured: seconds, and
CPU seconds of JVM and Python workers. `--record` appends to bench/results.ndjson; `--memory GIB` measures a
worker's memory for a store of that size instead.
"""

import argparse
import contextlib
import io
import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from bench import load, spark_store
from bench.backing import Reserve, kept
from bench.frames import batch_request
from bench.measuring import quiet
from bench.processes import Sampler, cpu_s, family
from bench.results import append
from firearrow._native.columnar.batch_encoder import PropertyEdits, batch_body
from firearrow._native.columnar.record_spans import End, Spans, walk
from firearrow._native.offline.mapped_files import MappedFile
from firearrow.client import blocking
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.columns import ALL, record_batches
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.base.worker_setup import setup_worker
from firearrow.spark_tools.jobs import export, replay
from firearrow.spark_tools.jobs.audit import audit
from firearrow.spark_tools.offline.reader import OfflineReader
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.sessions import scan, session

MASTER = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
READ_BYTES = 2 << 20
RESERVED_STORES = 3
"""The new memory that a row may need: for what it reads, for what it writes, for the broker."""
MEASURED_ROWS = 100_000
"""With fewer messages, figures are meaningless: they only show that everything runs."""
DECODES, READS = 3, 3
"""Samples of a round: short ones need more of them."""
NATIVE_BATCHES = 32
NATIVE_BATCH_BYTES = 1 << 20


@dataclass
class Samples:
    """Of one row, in the order in which they were taken."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def take(self, seconds: float, cpu_s: float) -> None:
        self.seconds.append(seconds)
        self.cpu_s.append(cpu_s)


def ratio(of: list[float], to: list[float]) -> float:
    return median(one / other for one, other in zip(of, to, strict=True))


@dataclass
class Bench:
    """One session and one store; `found` has what was measured so far."""

    spark: SparkSession
    store: Path
    rows: int
    work: Path
    found: dict[str, Samples] = field(default_factory=dict)
    turn: int = 0
    backwards: bool = False
    reserve: Reserve = field(init=False)

    def __post_init__(self) -> None:
        self.reserve = Reserve(RESERVED_STORES * self.rows * spark_store.BODY_BYTES)

    def samples(self, of_a_round: int) -> int:
        return of_a_round if self.rows >= MEASURED_ROWS else 1

    def in_turn(self, *runs: Callable[[], None]) -> None:
        """Run what is compared, each time in the opposite order."""
        for run in reversed(runs) if self.backwards else runs:
            run()
        self.backwards = not self.backwards

    def time(self, name: str, run: Callable[[], None], *, reads: Path | None = None) -> None:
        """`reads`: the folder that it reads, if that is not the store."""
        with self.ready(reads or self.store):
            before, began = family(), time.perf_counter()
            run()
            seconds = time.perf_counter() - began
            self.found.setdefault(name, Samples()).take(seconds, cpu_s(before, family()))
        print(f"  {name}: {seconds:.2f} s", file=sys.stderr)

    @contextlib.contextmanager
    def ready(self, reads: Path) -> Iterator[None]:
        """No writeback or JIT compilation is left, memory is reserved, what is read is in the cache."""
        if self.rows >= MEASURED_ROWS:
            quiet()
        self.reserve.fill()
        with kept(reads), self.reserve:
            yield

    def table(self) -> DataFrame:
        return self.spark.read.format("rocketmq").option("path", str(self.store)).load()

    def fresh(self, name: str) -> Path:
        """The path of a new folder."""
        self.turn += 1
        return self.work / f"{name}-{self.turn}"

    # ---- what is compared ----

    def decode(self) -> None:
        """One core, no Spark, seconds of this thread's CPU: the log in its order, while the kernel maps its
        pages and when they are mapped; queue after queue.
        """
        setup_worker()  # as in each worker
        with self.ready(self.store), StoreSource((str(self.store),)).open() as reader:
            (name,) = reader.brokers
            self._decode(
                "decode, pages not mapped yet",
                name,
                reader.read_log(name, 0, None, torn, bytes_max=READ_BYTES),
            )
            self._decode("decode", name, mapped(reader, name))
            queues = [queue for topic in spark_store.TOPICS for queue in reader.queues(topic)]
            parts = [QueueRange(queue, *bounds) for queue, bounds in reader.bounds(queues).items()]
            reads = (reader.read(part, MessageFilter(), refuse, bytes_max=READ_BYTES) for part in parts)
            self._decode("decode by queues", name, chain.from_iterable(reads))

    def _decode(self, row: str, name: str, found: Iterable[Spans]) -> None:
        done, began = 0, time.thread_time()
        for spans in found:
            done += sum(map(len, record_batches(spans, ALL, name, open_bodies=True)))
        seconds = time.thread_time() - began
        assert done == self.rows, f"{done} of {self.rows} messages were read"
        self.found.setdefault(row, Samples()).take(seconds, seconds)

    def read(self, parquet: dict[str, Path]) -> None:
        runs = [
            partial(self.time, "read, rocketmq", lambda: to_nothing(self.table())),
            partial(self.time, "scan, rocketmq", lambda: to_nothing(scan(self.spark, path=str(self.store)))),
        ]
        for name, folder in parquet.items():
            run = partial(lambda at: to_nothing(self.spark.read.parquet(str(at))), folder)
            runs.append(partial(self.time, f"read, parquet {name}", run, reads=folder))
        for _ in range(self.samples(READS)):
            self.in_turn(*runs)

    def export(self) -> None:
        ours, theirs = self.fresh("export"), self.fresh("frame")
        to = ["--to", ours, "--partition-by", "none"]
        self.in_turn(
            partial(self.time, "export, job", lambda: self.program(export.cli, "--path", self.store, *to)),
            partial(self.time, "export, df.write", lambda: zstd(self.table()).parquet(str(theirs))),
        )
        assert self.spark.read.parquet(str(ours)).count() == self.rows
        shutil.rmtree(ours)
        shutil.rmtree(theirs)

    def send(self, frames: list[bytes], each: int) -> None:
        def job(broker: LocalBroker) -> None:
            arguments = ["--checkpoint", self.fresh("replay"), "--target", broker.name_server]
            self.program(replay.cli, "--path", self.store, *arguments)

        self.in_turn(
            partial(
                self.take,
                "replay, source to sink",
                lambda broker: to_sink(self.table(), {"nameServer": broker.name_server}),
            ),
            partial(self.take, "replay, job", job),
            partial(
                self.take,
                "native load",
                lambda broker: natively(broker.address, frames, self.rows // each),
            ),
        )

    def take(self, name: str, run: Callable[[LocalBroker], None]) -> None:
        """Send to a new broker, whose store is deleted afterwards: old data would fill the page cache."""
        folder = self.fresh("target")
        with LocalBroker(folder) as broker:
            with blocking.Admin(name_server=broker.name_server) as admin:
                for topic in spark_store.TOPICS:
                    admin.create_topic(topic, spark_store.QUEUES)
            self.time(name, lambda: run(broker))
        shutil.rmtree(folder)

    def program(self, cli: Callable[..., object], *words: object) -> None:
        """A job's program as spark-submit runs it, in this session."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = cli([*map(str, words), "--quiet"])
        assert not code, output.getvalue()


def mapped(reader: OfflineReader, name: str) -> Iterator[Spans]:
    """The log, whose pages are touched first."""
    mappings = [found for segment in reader.segments(name) if (found := reader.window(segment)) is not None]
    for mapping in mappings:
        mapping.window[:: mmap.PAGESIZE]
    return chain.from_iterable(map(walked, mappings))


def walked(mapping: MappedFile) -> Iterator[Spans]:
    at, why = 0, End.LIMIT
    while why is End.LIMIT and at < len(mapping.window):
        spans, at, why = walk(
            mapping.window, at, len(mapping.window), base=mapping.base, bytes_max=READ_BYTES
        )
        yield spans


def torn(start: int, end: int, why: str) -> None:
    raise AssertionError(f"[{start}, {end}) of the log: {why}")


def refuse(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part}: {why}")


def to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def zstd(frame: DataFrame) -> DataFrameWriter:
    return frame.write.option("compression", "zstd")


def to_sink(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("rocketmq").options(**options).mode("append").save()


# ---- the broker's speed ----


def native_frames(store: Path) -> tuple[list[bytes], int]:
    """Batch requests with the store's messages, for the load generator; the mean number of messages in one."""
    frames: list[bytes] = []
    counts = 0
    with StoreSource((str(store),)).open() as reader:
        queue = reader.queues(spark_store.TOPICS[0])[0]
        part = QueueRange(queue, 0, 2 * NATIVE_BATCHES * 1000)
        for spans in reader.read(part, MessageFilter(), lambda part, why: None, bytes_max=64 << 20):
            first = 0
            while first < len(spans) and len(frames) < NATIVE_BATCHES:
                batch = batch_body(
                    spans, first, PropertyEdits(frozenset(), {}, None), bytes_max=NATIVE_BATCH_BYTES
                )
                first, counts = batch.next, counts + batch.count
                number = len(frames)
                frames.append(batch_request(number % 4, batch.body, number + 1, topic=queue.topic))
    return frames, counts // len(frames)


def natively(address: str, frames: list[bytes], requests: int) -> None:
    """Send `requests` batches with the native load generator, which checks only the codes of responses."""
    host, _, port = address.rpartition(":")
    load.drive((host, int(port)), frames, load.Workload(4, 4, requests, check=False))


# ---- runs ----


def measured(bench: Bench, rounds: int, wanted: list[str]) -> None:
    parquet = {name: bench.work / f"parquet-{name}" for name in ("snappy", "none")}
    if "read" in wanted:
        for name, folder in parquet.items():
            bench.table().write.option("compression", name).parquet(str(folder))
    frames, each = native_frames(bench.store) if "send" in wanted else ([], 0)
    for number in range(rounds):
        print(f"round {number + 1}/{rounds}", file=sys.stderr)
        for _ in range(bench.samples(DECODES)):
            bench.decode()
        if "read" in wanted:
            bench.read(parquet)
        if "export" in wanted:
            bench.export()
        if "send" in wanted:
            bench.send(frames, each)


GOALS = (
    ("read, parquet snappy", "scan, rocketmq", 1.0),
    ("read, parquet none", "scan, rocketmq", 1.0),
    ("read, parquet snappy", "read, rocketmq", None),
    ("export, df.write", "export, job", 4.0),
    ("replay, source to sink", "replay, job", 4.0),
    ("native load", "replay, job", 0.5),
)
"""How many times as fast as the first the second must be; None: only reported."""


def table(bench: Bench) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, samples in bench.found.items():
        seconds = median(samples.seconds)
        rows.append(
            {"row": name, "s": round(seconds, 2), "messages/s": round(bench.rows / seconds)}
            | {"cpu us/message": round(median(samples.cpu_s) / bench.rows * 1e6, 2)}
            | {"messages/s at best": round(bench.rows / min(samples.seconds))}
        )
    rate = bench.rows / median(bench.found["decode"].seconds) / 1e6
    rows.append(
        {"row": "decode, millions a second", "goal": 3.0, "ratio": round(rate, 2), "of cpu": round(rate, 2)}
    )
    for slow, quick, goal in GOALS:
        if slow in bench.found and quick in bench.found:
            one, other = bench.found[slow], bench.found[quick]
            rows.append(
                {
                    "row": f"{quick} / {slow}",
                    "goal": goal,
                    "ratio": round(ratio(one.seconds, other.seconds), 2),
                }
                | {"of cpu": round(ratio(one.cpu_s, other.cpu_s), 2)}
            )
    return rows


def memory(bench: Bench, gib: int) -> list[dict[str, object]]:
    """The peak anonymous memory of a Python worker while the store is read, exported, sent and audited."""
    rows: list[dict[str, object]] = []
    out = bench.fresh("out")
    out.mkdir()
    with LocalBroker(out / "target") as broker:
        arguments = ["--checkpoint", out / "checkpoint", "--target", broker.name_server, "--create-topics"]
        runs: dict[str, Callable[[], None]] = {
            "read, rocketmq": lambda: to_nothing(bench.table()),
            "scan, rocketmq": lambda: to_nothing(scan(bench.spark, path=str(bench.store))),
            "export, job": lambda: bench.program(export.cli, "--path", bench.store, "--to", out / "export"),
            "replay, job": lambda: bench.program(replay.cli, "--path", bench.store, *arguments),
            "audit, job": lambda: bench.program(audit.cli, "--path", bench.store, "--report", out / "audit"),
        }
        for name, run in runs.items():
            with Sampler() as sampler:
                run()
            most = round(sampler.worker_mib)
            rows.append({"row": name, "store GiB": gib, "worker MiB at most": most})
    shutil.rmtree(out)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_bench", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="of the store's log")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", choices=["read", "export", "send"], default=["read", "export", "send"]
    )
    parser.add_argument("--memory", type=int, metavar="GIB", help="a worker's memory, over 1 GiB and so many")
    parser.add_argument(
        "--folder", type=Path, help="where the files go while it runs [default: the temporary folder]"
    )
    parser.add_argument("--record", action="store_true", help="append to bench/results.ndjson")
    given = parser.parse_args()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="firearrow-spark-", dir=given.folder) as folder:
        work = Path(folder)
        local = {"spark.local.dir": str(work / "local"), "spark.sql.warehouse.dir": str(work / "warehouse")}
        spark = session("bench", master=MASTER, settings=SETTINGS | local)
        for mib in [1024, given.memory << 10] if given.memory else [given.mib]:
            store = work / f"store-{mib}"
            bench = Bench(spark, store, spark_store.make(store, mib << 20), work)
            print(f"{bench.rows} messages in {store}", file=sys.stderr)
            if given.memory:
                rows += memory(bench, mib >> 10)
            else:
                measured(bench, given.rounds, given.only)
                rows += table(bench)
            shutil.rmtree(store)
        spark.stop()
    for row in rows:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))
    if given.record:
        append("memory" if given.memory else "spark", master=MASTER, rows=rows)


if __name__ == "__main__":
    main()
