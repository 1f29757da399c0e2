"""What tests of replay and redrive share: jobs run in this process, and a store's content read from its files."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from firearrow._native.store.log.record import Record
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.program import Program
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark import running
from tests.spark.in_process_context import InProcessSparkContext


@dataclass
class Ran:
    code: int
    out: str
    err: str
    report: dict[str, Any]


@dataclass
class Job:
    """A job's program. `alone` runs its tasks."""

    program: Program
    folder: Path
    alone: InProcessSparkContext

    def __call__(self, *arguments: str, checkpoint: str = "checkpoint", quiet: bool = True) -> Ran:
        """With a checkpoint and a report below `folder`."""
        file = self.folder / "report.json"
        file.unlink(missing_ok=True)
        common = (
            "--checkpoint",
            str(self.folder / checkpoint),
            "--report",
            str(file),
            *(["--quiet"] if quiet else []),
        )
        ran = running.run(self.program, *arguments, *common)
        return Ran(*ran, orjson.loads(file.read_bytes()) if file.exists() else {})


def job(program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    alone = InProcessSparkContext()
    monkeypatch.setattr(task_runner, "context", lambda _: alone)
    return Job(program, folder, alone)


def stored(root: Path, topic: str) -> dict[tuple[str, int], list[Record]]:
    """All of a topic, by broker and queue id, read from the store's files; the broker may run."""

    def lost(part: QueueRange, why: str) -> None:
        raise AssertionError(f"{part}: {why}")

    with StoreSource((str(root),)).open() as reader:
        found = {}
        for queue, (start, end) in reader.bounds(reader.queues(topic)).items():
            parts = reader.read(QueueRange(queue, start, end), MessageFilter(), lost, bytes_max=1 << 20)
            records = [spans[index] for spans in parts for index in range(len(spans))]
            if records:
                found[queue.broker_name, queue.queue_id] = records
    return found


def bodies(root: Path, topic: str) -> dict[int, list[bytes]]:
    """As they are stored, by queue id."""
    return {
        queue_id: [record.body for record in records]
        for (_, queue_id), records in stored(root, topic).items()
    }


def file_hashes(root: Path) -> dict[str, tuple[int, str]]:
    """Modification time and digest of every file of a store."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


Replay = Callable[..., Ran]
