"""A job's checkpoint folder: its plan, and the progress of each slice, so that a killed job can resume.

    plan.json      job, id, digest of the arguments, slices with their offsets; written once, before anything else
    marks/NUMBER   how far a slice has come, and its counts: lines, of which the last whole one counts
    lock           locked by the driver of the one run that uses the folder

The worker that has a slice writes its progress, the driver the rest. Executors on other machines need the folder on a
shared file system. Unreadable progress counts as missing: its slice is repeated, never skipped. Progress is appended as
a line; only long files are replaced by renaming, which may wait for a disk that is busy with the job's output.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.disk_errors import disk_errors, write_durably
from firearrow.spark_tools.base.errors import InvalidOption, SparkToolsError
from firearrow.spark_tools.base.source import QueueRange, RecordId

VERSION = 1
PLAN, LOCK = "plan.json", "lock"
PLAN_BYTES_MAX = 1 << 30
PROGRESS_BYTES_MAX = 16 << 20
LINES_BYTES_MAX = 64 << 10
BAD_JSON = (orjson.JSONDecodeError, KeyError, TypeError, ValueError)


class InvalidCheckpoint(SparkToolsError):
    """The folder belongs to another job or to a running one, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of the plan that one task processes from its first to its last offset."""

    number: int
    part: QueueRange


@dataclass(frozen=True, slots=True)
class Plan:
    """What to process, and requested messages that no longer exist."""

    ranges: Sequence[QueueRange]
    lost: Mapping[str, int] = field(default_factory=dict)
    """Messages by range and reason; of many ranges only the first."""
    gone: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counts of all of them by topic."""
    records: Mapping[MessageQueue, RecordId] = field(default_factory=dict)
    """The last record of each queue's ranges: a queue that was recreated has another one."""


@dataclass(slots=True)
class SliceProgress:
    """Everything below the queue offset `next` is finished. `counts` add up over slices, `detail` depends on
    the job."""

    number: int
    next: int
    counts: dict[str, int] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


@dataclass(frozen=True, slots=True)
class ProgressFiles:
    """The progress of all slices of a checkpoint. Picklable; any thread, but one writer for each slice."""

    folder: Path

    def read(self, slice_: Slice) -> SliceProgress:
        """The progress written last; new progress if there is none."""
        return self._read(slice_.number) or SliceProgress(slice_.number, slice_.part.start)

    def write(self, progress: SliceProgress) -> None:
        """Replace the slice's progress. WriteFailed: the previous one stays. Not synced: what a power failure
        loses is sent again, not lost."""
        path = self.folder / str(progress.number)
        line = orjson.dumps({"next": progress.next, "counts": progress.counts, "detail": progress.detail})
        with disk_errors(path):
            with path.open("ab") as file:
                if file.tell() + len(line) < LINES_BYTES_MAX:
                    file.write(b"\n" + line)
                    return
            temporary = path.with_name(f".{progress.number}.{os.getpid()}")
            temporary.write_bytes(line)
            temporary.replace(path)

    def written(self, without: set[int] | frozenset[int] = frozenset()) -> Iterator[SliceProgress]:
        """All that exist, except those in `without`."""
        with os.scandir(self.folder) as entries:
            numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
        for number in sorted(set(numbers) - without):
            progress = self._read(number)
            if progress is not None:
                yield progress

    def _read(self, number: int) -> SliceProgress | None:
        try:
            lines = _start(self.folder / str(number), PROGRESS_BYTES_MAX).split(b"\n")
        except FileNotFoundError:
            return None
        for line in reversed(lines):
            with suppress(*BAD_JSON):
                fields = orjson.loads(line)
                return SliceProgress(
                    number, int(fields["next"]), dict(fields["counts"]), dict(fields["detail"])
                )
        return None


def _start(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    job: str
    id: str
    """Identifies this job with these arguments; sent messages carry it."""
    created_ms: int
    slices: tuple[Slice, ...]
    resumed: bool
    lost: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Both as in the plan."""
    records: Mapping[MessageQueue, RecordId] = field(default_factory=dict)

    @property
    def progress_files(self) -> ProgressFiles:
        return ProgressFiles(self.folder / "marks")

    def forget(self) -> None:
        """Delete the checkpoint's files, and the folder if nothing else is in it."""
        shutil.rmtree(self.progress_files.folder)
        for name in (PLAN, LOCK):
            (self.folder / name).unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def unfinished(self, progress_files: ProgressFiles | None = None) -> list[Slice]:
        """Slices that are not finished, by those files or by the checkpoint's own."""
        ends = {
            progress.number: progress.next for progress in (progress_files or self.progress_files).written()
        }
        return [
            slice_ for slice_ in self.slices if ends.get(slice_.number, slice_.part.start) < slice_.part.end
        ]


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


@contextmanager
def checkpoint(
    folder: Path | None,
    job: str,
    arguments: Mapping[str, Any],
    plan: Callable[[], Plan | Sequence[QueueRange]],
) -> Iterator[Checkpoint]:
    """The one in `folder`, or a new one planned by `plan`; locked until the end of the block.

    Default folder: `.firearrow-JOB-DIGEST` where the command runs. InvalidCheckpoint: made by another job,
    with other arguments, or in use. WriteFailed: no space for the plan.
    """
    digest = arguments_digest(arguments)
    path = (folder or Path(f".firearrow-{job}-{digest}")).absolute()
    try:
        (path / "marks").mkdir(parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidOption(f"--checkpoint: {path} cannot be used: {error.strerror}") from None
    try:
        _take_lock(lock, path)
        yield _load(path, job, digest) or _begin(path, job, digest, plan())
    finally:
        os.close(lock)


def _take_lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidCheckpoint(
            f"{path}: another run of this job uses this checkpoint; wait for it or stop it"
        ) from None


def _begin(path: Path, job: str, digest: str, made: Plan | Sequence[QueueRange]) -> Checkpoint:
    planned = made if isinstance(made, Plan) else Plan(made)
    slices = tuple(Slice(number, part) for number, part in enumerate(planned.ranges))
    created_ms = time.time_ns() // 1_000_000
    name = f"{job}-{digest}-{created_ms:x}"
    plan = {
        "version": VERSION,
        "job": job,
        "id": name,
        "arguments": digest,
        "created": created_ms,
        "slices": [_row(slice_.part) for slice_ in slices],
        "lost": dict(planned.lost),
        "gone": dict(planned.gone),
        "records": [[*_place(queue), *_id(record)] for queue, record in planned.records.items()],
    }
    write_durably(path / PLAN, orjson.dumps(plan))
    return Checkpoint(
        path, job, name, created_ms, slices, resumed=False, lost=planned.lost, gone=planned.gone,
        records=planned.records,
    )  # fmt: skip


def _load(path: Path, job: str, digest: str) -> Checkpoint | None:
    try:
        plan = orjson.loads(_start(path / PLAN, PLAN_BYTES_MAX))
        made_by, arguments, version = plan["job"], plan["arguments"], plan["version"]
        slices = tuple(Slice(number, _range(row)) for number, row in enumerate(plan["slices"]))
        created_ms, lost, gone = int(plan["created"]), dict(plan["lost"]), dict(plan["gone"])
        records = dict(map(_record, plan.get("records", [])))  # earlier versions have none
        found = Checkpoint(
            path, job, str(plan["id"]), created_ms, slices, resumed=True, lost=lost, gone=gone,
            records=records,
        )  # fmt: skip
    except FileNotFoundError:
        return None
    except BAD_JSON as error:
        raise InvalidCheckpoint(
            f"{path}: plan.json is not a plan of a job ({error}); choose another --checkpoint"
        ) from None
    if version != VERSION or made_by != job:
        raise InvalidCheckpoint(
            f"{path}: is of a job {made_by!r} (form {version}); choose another --checkpoint"
        )
    if arguments != digest:
        raise InvalidCheckpoint(
            f"{path}: was started with other arguments; use those again to resume, or choose another --checkpoint"
        )
    return found


def _row(part: QueueRange) -> list[str | int]:
    return [*_place(part.queue), part.start, part.end, part.size]


def _place(queue: MessageQueue) -> list[str | int]:
    return [queue.topic, queue.broker_name, queue.queue_id]


def _id(record: RecordId) -> list[int]:
    return [record.queue_offset, record.physical_offset, record.store_ms]


def _record(row: Sequence[Any]) -> tuple[MessageQueue, RecordId]:
    topic, broker, queue_id, *numbers = row
    queue_offset, physical_offset, store_ms = map(int, numbers)
    queue = MessageQueue(str(topic), str(broker), int(queue_id))
    return queue, RecordId(queue_offset, physical_offset, store_ms)


def _range(row: Sequence[Any]) -> QueueRange:
    topic, broker, queue_id, start, end, size = row
    return QueueRange(MessageQueue(str(topic), str(broker), int(queue_id)), int(start), int(end), int(size))
