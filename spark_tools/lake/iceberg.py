"""Tables of Iceberg. The progress is a property in the summary of the snapshot. A property of the table,
`firearrow.export.JOB`, shows that there is or was one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import TableProperties

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.lake.progress import KEY, HistoryExpired, Progress, TableChanged

if TYPE_CHECKING:
    from pyiceberg.table import Table


FIRST = 1
"""Sequence number of a table's first snapshot."""


class IcebergTable:
    def __init__(self, catalog: Catalog, identifier: str) -> None:
        """`identifier`: `NAMESPACE.TABLE`."""
        self._catalog = catalog
        self._identifier = identifier
        self._table: Table | None = None

    def __str__(self) -> str:
        return f"{self._catalog.name}.{self._identifier}"

    def progress(self, job: str) -> Progress | None:
        try:
            self._table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            self._table = None
            return None
        oldest, snapshot = None, self._table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            found = None if summary is None else Progress.of(summary.additional_properties.get(KEY), job)
            if found is not None:
                return found
            oldest, parent = snapshot, snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.metadata.snapshot_by_id(parent)
        if oldest is None or oldest.sequence_number == FIRST or _mark(job) not in self._table.properties:
            return None
        raise HistoryExpired(self, job, f"its snapshots before {oldest.snapshot_id} have expired")

    def columns(self) -> list[str] | None:
        return None if self._table is None else [field.name for field in self._table.schema().fields]

    def append(self, batches: pa.RecordBatchReader, progress: Progress) -> None:
        """PyIceberg writes batches of a partitioned table only as a whole, so they are held in memory."""
        table = self._created(batches.schema) if self._table is None else self._table
        no_retries = table.metadata.properties | {TableProperties.COMMIT_NUM_RETRIES: "0"}
        # of this object only; a retry would pass over a commit of another export
        table.metadata = table.metadata.model_copy(update={"properties": no_retries})
        rows = batches if table.spec().is_unpartitioned() else batches.read_all()
        try:
            with table.transaction() as transaction:
                if _mark(progress.job) not in table.properties:
                    transaction.set_properties({_mark(progress.job): "true"})
                transaction.append(rows, snapshot_properties={KEY: progress.text()})
        except CommitFailedException as error:
            raise TableChanged(f"{self}: {error}") from None
        self._table = table  # not refreshed: the next commit must follow this one

    def _created(self, schema: pa.Schema) -> "Table":
        namespace = self._catalog.namespace_from(self._identifier)
        if namespace:
            self._catalog.create_namespace_if_not_exists(namespace)
        try:
            return self._catalog.create_table(self._identifier, schema=schema)
        except TableAlreadyExistsError as error:
            raise TableChanged(f"{self}: {error}") from None


def _mark(job: str) -> str:
    return f"{KEY}.{job}"


def catalog_of(name: str, options: Mapping[str, str]) -> Catalog:
    """`name`: in PyIceberg's configuration. InvalidOption."""
    try:
        return load_catalog(name, **options)
    except Exception as error:  # of the library of the catalog, whichever it is
        raise InvalidOption(f"the catalog cannot be opened: {error}") from error
