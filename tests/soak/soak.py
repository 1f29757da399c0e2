"""A soak: writers, fast and slow readers, and retention that deletes segment after segment."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.soak.fast_broker import QUEUE_FILE_BYTES, ROOT, SEGMENT_BYTES, FastBroker
from tests.soak.process_metrics import ProcessMetrics
from tests.soak.readers import TOPICS, Reader, Writer

SAMPLE_S = 0.25
SLOW_PAUSE_S = 2.5
FULL_EVERY_S, FULL_S = 20.0, 0.5
SPARK_S = 150
GROWTH_KIB = 24 << 10
"""Memory may rise by this much between the first half and the second."""
MAPPINGS_MAX, DESCRIPTORS_MAX = 4000, 200


@dataclass(frozen=True)
class Plan:
    seconds: float
    seed: int
    spark: bool = False
    warm_s: float = 2.0
    """Samples before that are ignored."""


class Soak:
    def __init__(self, home: Path, plan: Plan, say: Callable[[str], None]) -> None:
        self._store = home / "store"
        self._plan = plan
        self._say = say
        self._broker = FastBroker(self._store)
        self._stopping, self._reading = threading.Event(), threading.Event()
        self._writers = [Writer(self._broker, number, plan.seed, self._stopping) for number in range(TOPICS)]
        self._readers = [
            Reader(self._broker, writer, f"{kind} reader of {writer.topic}", pause_s, self._reading)
            for writer in self._writers
            for kind, pause_s in (("fast", 0.0), ("slow", SLOW_PAUSE_S))
        ]
        self._samples: list[ProcessMetrics] = []
        self._refusals = 0
        self._wrong: list[str] = []

    def run(self) -> dict[str, object]:
        """The summary; `wrong` in it is empty if every promise was kept."""
        began = time.monotonic()
        with self._broker:
            for worker in (*self._writers, *self._readers):
                worker.start()
            spark = self._start_spark() if self._plan.spark else None
            self._watch(began)
            self._stopping.set()
            self._join(self._writers)
            if spark is not None:
                self._end_spark(spark)
            self._reading.set()
            self._join(self._readers)
            last = max(self._broker.segments())
            self._drain()
            if (code := self._broker.stop(30)) != 0:
                self._wrong.append(f"the broker's exit code was {code}")
        self._judge()
        verified = self._verify()
        return self._summary(time.monotonic() - began, last // SEGMENT_BYTES, verified)

    def _watch(self, began: float) -> None:
        """Sample the process until the time is over; fill the disk sometimes."""
        next_full = began + min(FULL_EVERY_S, self._plan.seconds / 2)
        while (now := time.monotonic()) < began + self._plan.seconds and not self._reading.is_set():
            time.sleep(SAMPLE_S)
            self._samples.append(ProcessMetrics.of(self._broker.process.pid, self._store))
            if now >= next_full:
                self._fill_disk()
                next_full = now + FULL_EVERY_S
                self._say(json.dumps(asdict(self._samples[-1])))

    def _fill_disk(self) -> None:
        """Messages are refused, old segments are deleted by force; then there is space again."""
        before = sum(writer.tally.refused for writer in self._writers)
        self._broker.set_disk_used(0.95)
        deadline = time.monotonic() + 10
        while sum(writer.tally.refused for writer in self._writers) == before:
            if time.monotonic() > deadline:
                self._wrong.append("a full disk refused no message")
                break
            time.sleep(0.01)
        self._broker.set_disk_used(0.10)
        self._refusals += 1

    def _join(self, workers: list[Writer] | list[Reader]) -> None:
        for worker in workers:
            worker.join(60)
            if worker.is_alive():
                self._wrong.append(f"{worker.name} did not end")

    def _drain(self) -> None:
        """Each reader reads what is left, up to the last message."""
        for reader in self._readers:
            if not reader.is_alive() and not reader.tally.wrong:
                with self._broker.connect() as peer:
                    reader.drain(peer)

    # ---- checks ----

    def _judge(self) -> None:
        for worker in (*self._writers, *self._readers):
            self._wrong += worker.tally.wrong
        settled = self._samples[int(self._plan.warm_s / SAMPLE_S) :]
        half = len(settled) // 2
        if not half:
            self._wrong.append("too short to be judged")
            return
        early, late = ProcessMetrics.highest(settled[:half]), ProcessMetrics.highest(settled[half:])
        if late.anonymous_kib > early.anonymous_kib + GROWTH_KIB:
            self._wrong.append(f"memory grew from {early.anonymous_kib} to {late.anonymous_kib} KiB")
        if late.mappings > MAPPINGS_MAX or late.descriptors > DESCRIPTORS_MAX:
            self._wrong.append(f"{late.mappings} mappings, {late.descriptors} descriptors")
        if late.disk_kib > 3 * early.disk_kib:
            self._wrong.append(f"the store grew from {early.disk_kib} to {late.disk_kib} KiB")

    def _verify(self) -> bool:
        command = [
            str(Path(sys.executable).parent / "firearrow"),
            "store",
            "verify",
            str(self._store),
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
        if done.returncode != 0:
            self._wrong.append(
                f"verify: exit code {done.returncode} {done.stdout[:2000]} {done.stderr[-1000:]}"
            )
        return done.returncode == 0

    def _summary(self, seconds: float, rolled: int, verified: bool) -> dict[str, object]:
        def total(workers: list[Writer] | list[Reader], name: str) -> int:
            return sum(getattr(worker.tally, name) for worker in workers)

        return {
            "seconds": round(seconds, 1),
            "seed": self._plan.seed,
            "sent": total(self._writers, "messages"),
            "refused while the disk was full": total(self._writers, "refused"),
            "times the disk was full": self._refusals,
            "read": total(self._readers, "messages"),
            "reported moves": total(self._readers, "moves"),
            "messages gone before they were read": total(self._readers, "passed_over"),
            "segments rolled": rolled,
            "highest": asdict(ProcessMetrics.highest(self._samples)),
            "segment bytes": SEGMENT_BYTES,
            "queue file bytes": QUEUE_FILE_BYTES,
            "verified": verified,
            "wrong": self._wrong[:20],
        }

    # ---- Spark ----

    def _start_spark(self) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "tests.soak.spark_reader",
            str(self._store),
            str(self._plan.seconds),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def _end_spark(self, spark: "subprocess.Popen[str]") -> None:
        """It has read the folder of the running broker repeatedly, and reports what was wrong."""
        try:
            said, _ = spark.communicate(timeout=SPARK_S)
        except subprocess.TimeoutExpired:
            spark.kill()
            self._wrong.append("Spark did not end")
            return
        lines = said.splitlines()
        self._say(lines[-1] if lines else "Spark said nothing")
        if spark.returncode != 0:
            self._wrong.append(f"Spark: exit code {spark.returncode} {said[-1000:]}")
