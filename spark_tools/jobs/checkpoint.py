"""A job's checkpoint folder: its plan, and the progress of each slice, so that a killed job can resume.

    plan.json      job, id, digest of the arguments, slices with their offsets; written once, before anything else
    marks/NUMBER   how far a slice has come, and what was counted: lines, of which the last whole one is true
    lock           held by the driver of the one run that works on it

The worker that has a slice writes its mark, the driver the rest. Executors on other machines need the folder on a
shared file system. An unreadable mark counts as missing: its slice is repeated, never skipped. A mark is appended as a
line; only long files are replaced by renaming, which may wait for a disk that is busy with the job's own output.
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
from firearrow.spark_tools.base.disk_errors import disk_errors
from firearrow.spark_tools.base.errors import InvalidOption, SparkToolsError
from firearrow.spark_tools.base.source import QueueRange

VERSION = 1
PLAN, LOCK = "plan.json", "lock"
PLAN_BYTES_MAX = 1 << 30
PROGRESS_BYTES_MAX = 16 << 20
LINES_BYTES_MAX = 64 << 10
BAD_JSON = (orjson.JSONDecodeError, KeyError, TypeError, ValueError)


class InvalidCheckpoint(SparkToolsError):
    """The folder belongs to another job, to another run that still goes on, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the plan that is done by one task from its first to its last offset."""

    number: int
    part: QueueRange


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, and what was asked for and is not there any more."""

    ranges: Sequence[QueueRange]
    lost: Mapping[str, int] = field(default_factory=dict)
    """Messages by range and why; of many ranges only the first ones."""
    gone: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic what was counted of all of them."""


@dataclass(slots=True)
class SliceProgress:
    """Everything below the queue offset `next` is finished. `counts` add up over slices, `detail` is the
    job's own."""

    number: int
    next: int
    counts: dict[str, int] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


@dataclass(frozen=True, slots=True)
class ProgressFiles:
    """The marks of one checkpoint. Picklable; any thread, but one writer for each slice."""

    folder: Path

    def read(self, piece: Slice) -> SliceProgress:
        """As it stands; a fresh one if there is none."""
        return self._read(piece.number) or SliceProgress(piece.number, piece.part.start)

    def write(self, mark: SliceProgress) -> None:
        """The slice's mark from now on, or NotWritten: the one before stays. Not synced: what a power failure
        takes is sent again, not lost."""
        place = self.folder / str(mark.number)
        line = orjson.dumps({"next": mark.next, "counts": mark.counts, "detail": mark.detail})
        with disk_errors(place):
            with place.open("ab") as file:
                if file.tell() + len(line) < LINES_BYTES_MAX:
                    file.write(b"\n" + line)
                    return
            beside = place.with_name(f".{mark.number}.{os.getpid()}")
            beside.write_bytes(line)
            beside.replace(place)

    def written(self, without: set[int] | frozenset[int] = frozenset()) -> Iterator[SliceProgress]:
        """All that are there, but those."""
        with os.scandir(self.folder) as entries:
            numbers = [int(entry.name) for entry in entries if entry.name.isdecimal()]
        for number in sorted(set(numbers) - without):
            mark = self._read(number)
            if mark is not None:
                yield mark

    def _read(self, number: int) -> SliceProgress | None:
        try:
            lines = _start(self.folder / str(number), PROGRESS_BYTES_MAX).split(b"\n")
        except FileNotFoundError:
            return None
        for line in reversed(lines):
            with suppress(*BAD_JSON):
                held = orjson.loads(line)
                return SliceProgress(number, int(held["next"]), dict(held["counts"]), dict(held["detail"]))
        return None


def _start(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    folder: Path
    job: str
    id: str
    """Of this job with these arguments; what it sends carries it."""
    created_ms: int
    slices: tuple[Slice, ...]
    resumed: bool
    lost: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Both as they were planned."""

    @property
    def marks(self) -> ProgressFiles:
        return ProgressFiles(self.folder / "marks")

    def forget(self) -> None:
        """Take away what the checkpoint has written, and the folder if nothing else is in it."""
        shutil.rmtree(self.marks.folder)
        for name in (PLAN, LOCK):
            (self.folder / name).unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def unfinished(self, marks: ProgressFiles | None = None) -> list[Slice]:
        """What those marks, or the checkpoint's own, do not have to the end."""
        ends = {mark.number: mark.next for mark in (marks or self.marks).written()}
        return [piece for piece in self.slices if ends.get(piece.number, piece.part.start) < piece.part.end]


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


@contextmanager
def checkpoint(
    folder: Path | None,
    job: str,
    arguments: Mapping[str, Any],
    plan: Callable[[], Plan | Sequence[QueueRange]],
) -> Iterator[Checkpoint]:
    """The one in `folder`, or a new one planned by `plan`; held until the end of the block.

    Default folder: `.firearrow-JOB-DIGEST` where the command runs. InvalidCheckpoint: made by another job,
    with other arguments, or in use. NotWritten: no room for the plan.
    """
    mark = arguments_digest(arguments)
    place = (folder or Path(f".firearrow-{job}-{mark}")).absolute()
    try:
        (place / "marks").mkdir(parents=True, exist_ok=True)
        lock = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidOption(f"--checkpoint: {place} cannot be used: {error.strerror}") from None
    try:
        _hold(lock, place)
        held = _load(place, job, mark)
        yield held or _begin(place, job, mark, plan())
    finally:
        os.close(lock)


def _hold(lock: int, place: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidCheckpoint(
            f"{place}: another run of this job uses this checkpoint; wait for it or stop it"
        ) from None


def _begin(place: Path, job: str, mark: str, made: Plan | Sequence[QueueRange]) -> Checkpoint:
    wanted = made if isinstance(made, Plan) else Plan(made)
    slices = tuple(Slice(number, part) for number, part in enumerate(wanted.ranges))
    created_ms = time.time_ns() // 1_000_000
    name = f"{job}-{mark}-{created_ms:x}"
    plan = {
        "version": VERSION,
        "job": job,
        "id": name,
        "arguments": mark,
        "created": created_ms,
        "slices": [_row(piece.part) for piece in slices],
        "lost": dict(wanted.lost),
        "gone": dict(wanted.gone),
    }
    beside = place / ".plan"
    with disk_errors(place / PLAN):
        with beside.open("wb") as file:
            file.write(orjson.dumps(plan))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place / PLAN)
    return Checkpoint(place, job, name, created_ms, slices, resumed=False, lost=wanted.lost, gone=wanted.gone)


def _load(place: Path, job: str, mark: str) -> Checkpoint | None:
    try:
        held = orjson.loads(_start(place / PLAN, PLAN_BYTES_MAX))
        made_by, arguments, version = held["job"], held["arguments"], held["version"]
        slices = tuple(Slice(number, _range(row)) for number, row in enumerate(held["slices"]))
        created_ms, lost, gone = int(held["created"]), dict(held["lost"]), dict(held["gone"])
        found = Checkpoint(
            place, job, str(held["id"]), created_ms, slices, resumed=True, lost=lost, gone=gone
        )
    except FileNotFoundError:
        return None
    except BAD_JSON as error:
        raise InvalidCheckpoint(
            f"{place}: plan.json is not a plan of a job ({error}); choose another --checkpoint"
        ) from None
    if version != VERSION or made_by != job:
        raise InvalidCheckpoint(
            f"{place}: is of a job {made_by!r} (form {version}); choose another --checkpoint"
        )
    if arguments != mark:
        raise InvalidCheckpoint(
            f"{place}: was started with other arguments; use those again to resume, or choose another --checkpoint"
        )
    return found


def _row(part: QueueRange) -> list[str | int]:
    return [part.queue.topic, part.queue.broker_name, part.queue.queue_id, part.start, part.end, part.size]


def _range(row: Sequence[Any]) -> QueueRange:
    topic, broker, queue_id, start, end, size = row
    return QueueRange(MessageQueue(str(topic), str(broker), int(queue_id)), int(start), int(end), int(size))
