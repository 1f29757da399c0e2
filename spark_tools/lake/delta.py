"""Tables of Delta Lake. The progress is the commit's `userMetadata`, which DESCRIBE HISTORY shows. The version of
the transaction `firearrow:JOB` counts the commits."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.lake.progress import HistoryExpired, Progress, TableChanged

LIMITS = (16, 1024, None)
"""How many commits are looked at first, then, and at last."""
UNSAFE = re.compile(r"[][#?^|\\]|%[0-9A-Fa-f]{2}")
"""In names of tables that deltalake writes, but whose commits it does not find, or looks for elsewhere."""


class DeltaLakeTable:
    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """InvalidOption: the offsets of such a table could not be found again."""
        if (unsafe := UNSAFE.search(uri)) is not None:
            raise InvalidOption(f"{uri}: the name of a Delta table may not have {unsafe[0]}")
        self._uri = uri
        self._storage_options = dict(storage_options or {})
        self._table: DeltaTable | None = None

    def __str__(self) -> str:
        return self._uri

    def progress(self, job: str) -> Progress | None:
        """The log keeps commits for 30 days (`delta.logRetentionDuration`), transactions for ever."""
        try:
            self._table = DeltaTable(self._uri, storage_options=self._storage_options)
        except TableNotFoundError:
            self._table = None
            return None
        oldest = self._table.version() + 1  # its commit may be missing as well
        for limit in LIMITS:
            for commit in self._current(self._table, limit, job):
                oldest = int(commit["version"])
                found = Progress.of(commit.get("userMetadata"), job)
                if found is not None:
                    return found
            if oldest == 0:
                return None
        if self._table.transaction_version(_application(job)) is None:
            return None
        raise HistoryExpired(self, job, f"its log has no commits before version {oldest} any more")

    def _current(self, table: DeltaTable, limit: int | None, job: str) -> Iterator[dict[str, Any]]:
        """The commits that led to the current state, the newest first: without those that RESTORE took back."""
        newest = table.version()
        for commit in table.history(limit):
            if commit["version"] > newest:
                continue
            yield commit
            if commit.get("operation") == "RESTORE":
                restored = commit.get("operationParameters", {}).get("version")
                if restored is None:
                    why = f"its version {commit['version']} restored the state of a time, not of a version"
                    raise HistoryExpired(self, job, why)
                newest = int(restored)

    def columns(self) -> list[str] | None:
        return None if self._table is None else [field.name for field in self._table.schema().fields]

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        application = _application(progress.job)
        before = None if self._table is None else self._table.transaction_version(application)
        properties = CommitProperties(
            custom_metadata={"userMetadata": progress.text()},
            max_commit_retries=0,  # otherwise a commit of another export would be passed over
            app_transactions=[Transaction(application, (before or 0) + 1)],
        )
        try:
            if self._table is None:
                write_deltalake(
                    self._uri,
                    batches,
                    mode="error",
                    storage_options=self._storage_options,
                    commit_properties=properties,
                )
                self._table = DeltaTable(self._uri, version=0, storage_options=self._storage_options)
            else:
                write_deltalake(self._table, batches, mode="append", commit_properties=properties)
        except CommitFailedError as error:
            raise TableChanged(f"{self}: {error}") from None
        except DeltaError as error:
            if self._table is None and DeltaTable.is_deltatable(self._uri, self._storage_options):
                raise TableChanged(f"{self}: {error}") from None
            raise


def _application(job: str) -> str:
    return f"firearrow:{job}"
