"""An export that is killed (SIGKILL) at a certain point: `python -m tests.spark.lake_killed KIND FOLDER SOURCE TOPIC
POINT`."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from firearrow.spark_tools.lake.export import append_new
from firearrow.spark_tools.lake.progress import LakeTable, Progress
from tests.spark.lakes import lake_of

POINTS = ("first batch", "rows written", "committed")
SMALL = {"maxOffsetsPerTrigger": "10", "batchRows": "3"}


class Killed:
    """The table, whose second commit is interrupted."""

    def __init__(self, table: LakeTable, point: str) -> None:
        self._table = table
        self._point = point
        self._commits = 0

    def progress(self, job: str) -> Progress | None:
        return self._table.progress(job)

    def columns(self) -> list[str] | None:
        return self._table.columns()

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        self._commits += 1

        def watched() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                self._reach("first batch", number > 0)
                yield batch
            self._reach("rows written")

        self._table.append(pa.RecordBatchReader.from_batches(batches.schema, watched()), progress)
        self._reach("committed")

    def _reach(self, point: str, now: bool = True) -> None:
        if now and point == self._point and self._commits == 2:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    kind, folder, source, topic, point = sys.argv[1:]
    table = Killed(lake_of(kind, Path(folder)).table(), point)
    append_new(table, source, topic, None, False, dict(SMALL))
