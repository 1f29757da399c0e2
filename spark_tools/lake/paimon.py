"""Tables of Paimon. The progress is a property of the snapshot."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.snapshot.snapshot_commit import SnapshotCommit

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.lake.progress import KEY, HistoryExpired, Progress, TableChanged

OPTIONS = {
    "commit.max-retries": "0",  # a retry would pass over a commit of another export
    "snapshot.ignore-empty-commit": "false",  # the offsets may be new without rows
}
"""Of our commits, not of the table."""


class PaimonTable:
    def __init__(self, catalog: Any, identifier: str) -> None:  # noqa: ANN401 (PyPaimon has no types)
        """`identifier`: `DATABASE.TABLE`."""
        self._catalog = catalog
        self._identifier = identifier
        self._table: Any = None
        self._base = 0
        """Id of the snapshot that `progress` has read; 0: there is none."""

    def __str__(self) -> str:
        return self._identifier

    def progress(self, job: str) -> Progress | None:
        """Paimon keeps the last ten snapshots, and those of the last hour (`snapshot.time-retained`)."""
        try:
            self._table = self._catalog.get_table(self._identifier).copy(OPTIONS)
        except TableNotExistException:
            self._table, self._base = None, 0
            return None
        snapshots = self._table.snapshot_manager()
        latest = snapshots.get_latest_snapshot()
        self._base = 0 if latest is None else latest.id
        for number in range(self._base, 0, -1):
            snapshot = latest if number == self._base else snapshots.get_snapshot_by_id(number)
            if snapshot is None:
                raise HistoryExpired(self, job, f"its snapshot {number} and those before it have expired")
            found = Progress.of((snapshot.properties or {}).get(KEY), job)
            if found is not None:
                return found
        return None

    def columns(self) -> list[str] | None:
        return None if self._table is None else [field.name for field in self._table.fields]

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        if self._table is None:
            self._create(batches.schema)
        builder = self._table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            for batch in batches:
                write.write_arrow_batch(batch)
            files = commit.file_store_commit
            files.snapshot_commit = only = OnlyAfter(files.snapshot_commit, self._base)
            try:
                commit.commit(write.prepare_commit(), snapshot_properties={KEY: progress.text()})
            except RuntimeError as error:
                if only.refused:
                    raise TableChanged(f"{self}: {error}") from None
                raise
        finally:
            write.close()
            commit.close()
        self._base += 1

    def _create(self, schema: pa.Schema) -> None:
        database = self._identifier.rpartition(".")[0]
        self._catalog.create_database(database, True)
        self._catalog.create_table(self._identifier, Schema.from_pyarrow_schema(schema), True)
        self._table = self._catalog.get_table(self._identifier).copy(OPTIONS)


class OnlyAfter(SnapshotCommit):  # type: ignore[misc]  # PyPaimon has no types
    """Commits a snapshot only if it follows a certain one."""

    def __init__(self, commit: SnapshotCommit, base: int) -> None:
        self._commit = commit
        self._base = base
        self.refused = False

    def commit(self, base_snapshot_uuid: str | None, snapshot: Any, statistics: list[Any]) -> bool:  # noqa: ANN401
        done = snapshot.id == self._base + 1 and self._commit.commit(base_snapshot_uuid, snapshot, statistics)
        self.refused = not done
        return bool(done)

    def close(self) -> None:
        self._commit.close()


def catalog_of(options: Mapping[str, str]) -> Any:  # noqa: ANN401 (PyPaimon has no types)
    """`options`: those of the catalog, such as `warehouse`. InvalidOption."""
    try:
        return CatalogFactory.create(dict(options))
    except Exception as error:  # of the library of the catalog, whichever it is
        raise InvalidOption(f"the catalog cannot be opened: {error}") from error
