"""List the jobs of this machine with their progress: copies, exports and imports of topics, and Spark's jobs."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.file_lock import is_locked, state_folder
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.cli.transfer.checkpoint import CHECKPOINTS, lock_of
from firearrow.client.cli.transfer.reading import Plan

COLUMNS = (
    *titled("job", "state"),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("left", "OFFSETS LEFT", Kind.COUNT),
    Column("startedMs", "STARTED", Kind.TIME),
    Column("changedMs", "PROGRESS AT", Kind.TIME),
    Column("path", "CHECKPOINT"),
)
FILES_MAX = 1000
"""That are listed, the newest."""
FILE_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 128 << 10
EXPORTS = "*.progress"
"""Checkpoints of exports that are not complete, beside their files."""
SPARK = ".firearrow-*"
"""Folders of Spark jobs, where the command has run: `plan.json`, `marks/SLICE` and `lock`."""
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError)


def declared() -> Command:
    """The command."""
    command = Command("jobs", __doc__)
    verb = command.only(list_jobs)
    verb.argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        help="folders of exports, and those in which `firearrow spark` was run (default: this one)",
    )
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def list_jobs(call: Call) -> None:
    """List the jobs of this machine with their progress. A job that was stopped continues with the same command.

    firearrow jobs
    firearrow jobs /srv/replays
    """
    folders = map(Path, call.arguments.folders or ["."])
    paths = [
        *_found(state_folder() / CHECKPOINTS, "*.json"),
        *(path for folder in folders for names in (EXPORTS, SPARK) for path in _found(folder, names)),
    ]
    newest = sorted(paths, key=lambda pair: -pair[0])
    rows = []
    for changed_s, path in newest[:FILES_MAX]:
        try:
            row = _spark_job(path) if path.is_dir() else _topic_job(path)
        except UNREADABLE:
            call.output.note(f"{path} cannot be read as a checkpoint")
            continue
        rows.append({"changedMs": int(changed_s * 1000), **row, "path": str(path)})
    call.output.rows(COLUMNS, rows)


def _found(folder: Path, names: str) -> Iterator[tuple[float, Path]]:
    """With the times when they changed."""
    for path in folder.glob(names):
        with contextlib.suppress(OSError):
            yield path.stat().st_mtime, path


def _state(*, is_running: bool, is_done: bool) -> str:
    return "running" if is_running else "done" if is_done else "stopped"


def _topic_job(path: Path) -> dict[str, Any]:
    """UNREADABLE."""
    whole = orjson.loads(_start(path, FILE_BYTES_MAX))
    state: Mapping[str, Any] = whole["state"]
    counts: Mapping[str, Any] = state.get("totals") or state.get("written") or {}
    left = Plan.load(state["plan"]).total if "plan" in state else None
    is_done = bool(state.get("done"))  # exports that are have no checkpoint
    return {
        "job": f"topic {whole['job']}",
        "state": _state(is_running=is_locked(lock_of(path)), is_done=is_done),
        "messages": int(counts.get("sent", counts.get("messages", 0))),
        "left": left,
        "startedMs": state.get("beganMs"),
        "arguments": whole["arguments"],
    }


def _spark_job(folder: Path) -> dict[str, Any]:
    """UNREADABLE."""
    plan = orjson.loads(_start(folder / "plan.json", FILE_BYTES_MAX))
    left, messages, changed_s = 0, 0, 0.0
    for number, (*_, start, end, _size) in enumerate(plan["slices"]):
        reached = int(start)
        with contextlib.suppress(FileNotFoundError), (folder / "marks" / str(number)).open("rb") as file:
            changed_s = max(changed_s, os.fstat(file.fileno()).st_mtime)
            mark = _last(file)
            reached, messages = int(mark["next"]), messages + int(mark["counts"].get("messages", 0))
        left += max(int(end) - reached, 0)
    row = {
        "job": f"spark {plan['job']}",
        "state": _state(is_running=is_locked(folder / "lock"), is_done=left == 0),
        "messages": messages,
        "left": left,
        "startedMs": int(plan["created"]),
    }
    return row | ({"changedMs": int(changed_s * 1000)} if changed_s else {})


def _start(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _last(file: IO[bytes]) -> dict[str, Any]:
    """The last whole line: a line that is being written may be cut."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - LINE_BYTES_MAX, 0))
    for line in reversed(file.read().split(b"\n")):
        with contextlib.suppress(orjson.JSONDecodeError):
            found: dict[str, Any] = orjson.loads(line)
            return found
    return {"next": 0, "counts": {}}
