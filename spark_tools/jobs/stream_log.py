"""StreamLog: the offsets and commits of a stream in Spark's checkpoint, in Spark's format.

    offsets/N    where micro-batch N ends, written before it begins
    commits/N    micro-batch N is done

A job that plans its micro-batches itself keeps them here, so that Spark goes on where it ended, and it where Spark
ended. Version 1 of the files, with one source. One process at a time; the job's lock sees to that.
"""

import time
import uuid
from pathlib import Path
from typing import Any

import orjson

from firearrow.spark_tools.base.disk_errors import disk_errors, write_durably
from firearrow.spark_tools.jobs.checkpoint import InvalidCheckpoint
from firearrow.spark_tools.plan.queue_records import StreamOffsets

VERSION = "v1"


class StreamLog:
    """`folder` is the stream's `checkpointLocation`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def last_planned(self) -> int:
        """-1: none."""
        return self._last("offsets")

    def last_committed(self) -> int:
        """-1: none."""
        return self._last("commits")

    def end(self, number: int) -> StreamOffsets:
        """Where a planned micro-batch ends. InvalidCheckpoint."""
        path = self._folder / "offsets" / str(number)
        try:
            version, _, *sources = path.read_text("utf-8").splitlines()
            if version != VERSION or len(sources) != 1:
                raise ValueError(f"{version}, {len(sources)} sources")
            return StreamOffsets.of_json(orjson.loads(sources[0]))
        except (OSError, ValueError) as error:
            raise InvalidCheckpoint(
                f"{path} cannot be used: {error}; start with a new --checkpoint"
            ) from None

    def plan(self, number: int, end: StreamOffsets) -> None:
        """WriteFailed."""
        metadata = self._folder / "metadata"
        if not metadata.exists():
            self._write(metadata, orjson.dumps({"id": str(uuid.uuid4())}).decode())
        about = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
        self._write(self._folder / "offsets" / str(number), f"{VERSION}\n{_text(about)}\n{_text(end.json())}")

    def commit(self, number: int) -> None:
        """WriteFailed."""
        self._write(self._folder / "commits" / str(number), f'{VERSION}\n{{"nextBatchWatermarkMs":0}}')

    def _last(self, kind: str) -> int:
        folder = self._folder / kind
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all. Spark's sum of an older file of that name would not fit, so it goes first."""
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        write_durably(path, text.encode())


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    return orjson.dumps(value).decode()
