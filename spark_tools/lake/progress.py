"""How far an export is: a part of each of its commits, so that rows and offsets are stored together or not at all.

The next run looks for it from the table's current state back through the commits that led to it: commits of others
(compaction, other exports) are passed over, and those that were rolled back are not among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import orjson
import pyarrow as pa

from firearrow.spark_tools.base.errors import SparkToolsError
from firearrow.spark_tools.plan.queue_records import StreamOffsets

KEY = "firearrow.export"
"""Property of a snapshot, and the member of the JSON text that names the job."""


class TableChanged(SparkToolsError):
    """The table has another commit since its progress was read; nothing was appended."""


class HistoryExpired(SparkToolsError):
    """The commits that may have the progress of the job no longer exist."""

    def __init__(self, table: object, job: str, why: str) -> None:
        super().__init__(
            f"{table}: {why}, so how far the export {job!r} is cannot be known; run it once with restart=True or "
            "--restart, from the offsets after the last rows that the table has (startingOffsets, --offsets)"
        )


@dataclass(frozen=True, slots=True)
class Progress:
    job: str
    offsets: StreamOffsets
    selection: Mapping[str, Any]
    """Which messages the job takes; another selection would leave gaps."""

    def text(self) -> str:
        found = {KEY: self.job, "selection": self.selection, "offsets": self.offsets.json()}
        return orjson.dumps(found).decode()

    @classmethod
    def of(cls, text: object, job: str) -> Self | None:
        """None: not written by this job."""
        try:
            found = orjson.loads(text) if isinstance(text, str) and KEY in text else None
            if not isinstance(found, dict) or found.get(KEY) != job:
                return None
            return cls(job, StreamOffsets.of_json(found["offsets"]), found["selection"])
        except (orjson.JSONDecodeError, KeyError, ValueError):
            return None


class LakeTable(Protocol):
    """A table to append to. Errors of its library are raised as they are."""

    def progress(self, job: str) -> Progress | None:
        """Read the table's current state, and where the job is in it; None: at its beginning. HistoryExpired."""

    def columns(self) -> list[str] | None:
        """Of the state that `progress` has read; None: there is no table."""

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        """Append all batches and `progress` in one commit, which follows the state that `progress` has read directly.
        Creates the table. TableChanged: there is another commit."""

    def __str__(self) -> str: ...
