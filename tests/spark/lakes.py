"""A table of each format, for tests: exported to, and read, changed, rolled back and shortened by its own library."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from firearrow.spark_tools.lake.delta import DeltaLakeTable
from firearrow.spark_tools.lake.export import Exported, append_new
from firearrow.spark_tools.lake.iceberg import IcebergTable
from firearrow.spark_tools.lake.progress import LakeTable

NAME = "sales.orders"
PARTITION = "queueId"
PAIMON = "firearrow.spark_tools.lake.paimon"
"""Imported where it is used: PyPaimon does not run with the Arrow of the other packages everywhere."""


class Lake(ABC):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def table(self) -> LakeTable:
        """Opened again."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Of `firearrow export`: the table."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """As another program, without offsets."""

    @abstractmethod
    def create(self, schema: pa.Schema, *, partitioned: bool = False) -> None: ...

    @abstractmethod
    def roll_back(self, commits: int) -> None: ...

    @abstractmethod
    def expire(self) -> None:
        """Forget all but the current state."""

    def compact(self) -> None:
        """Some commit that does not change rows."""
        self.append(pa.Table.from_pylist([], schema=pa.schema([("queueId", pa.int32())])))

    def export(
        self,
        source: str | Path,
        topic: str | None = None,
        job: str | None = None,
        **options: Any,  # noqa: ANN401 (those of `append_new`)
    ) -> Exported:
        return append_new(self.table(), source, topic, job, options.pop("restart", False), options)

    def bodies(self) -> list[bytes]:
        return sorted(row["body"] for row in self.rows())


class DeltaLake(Lake):
    def table(self) -> LakeTable:
        return DeltaLakeTable(str(self.folder / "delta"))

    def arguments(self) -> list[str]:
        return [str(self.folder / "delta"), "--format", "delta"]

    @property
    def _delta(self) -> DeltaTable:
        return DeltaTable(self.folder / "delta")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._delta.to_pyarrow_table().to_pylist()
        return found

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.folder / "delta", rows, mode="append", schema_mode="merge")

    def create(self, schema: pa.Schema, *, partitioned: bool = False) -> None:
        DeltaTable.create(self.folder / "delta", schema, partition_by=[PARTITION] if partitioned else None)

    def roll_back(self, commits: int) -> None:
        self._delta.restore(self._delta.version() - commits)

    def compact(self) -> None:
        self._delta.optimize.compact()

    def expire(self) -> None:
        table = self._delta
        table.create_checkpoint()
        for number in range(table.version()):
            (self.folder / "delta" / "_delta_log" / f"{number:020}.json").unlink()


class IcebergLake(Lake):
    @property
    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.options())

    def options(self) -> Mapping[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/iceberg",
        }

    def table(self) -> LakeTable:
        return IcebergTable(self.catalog, NAME)

    def arguments(self) -> list[str]:
        options = [f"--table-option={key}={value}" for key, value in self.options().items()]
        return [NAME, "--format", "iceberg", "--catalog", "lake", *options]

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.catalog.load_table(NAME).scan().to_arrow().to_pylist()
        return found

    def append(self, rows: pa.Table) -> None:
        self.catalog.load_table(NAME).append(rows)

    def create(self, schema: pa.Schema, *, partitioned: bool = False) -> None:
        self.catalog.create_namespace_if_not_exists("sales")
        table = self.catalog.create_table(NAME, schema=schema)
        if partitioned:
            with table.update_spec() as spec:
                spec.add_identity(PARTITION)

    def roll_back(self, commits: int) -> None:
        table = self.catalog.load_table(NAME)
        snapshot = table.current_snapshot()
        for _ in range(commits):
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()

    def expire(self) -> None:
        table = self.catalog.load_table(NAME)
        current = table.current_snapshot().snapshot_id
        for snapshot in table.snapshots():
            if snapshot.snapshot_id != current:
                table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


class PaimonLake(Lake):
    @property
    def catalog(self) -> Any:  # noqa: ANN401 (PyPaimon has no types)
        return import_module(PAIMON).catalog_of({"warehouse": str(self.folder / "paimon")})

    def table(self) -> LakeTable:
        table: LakeTable = import_module(PAIMON).PaimonTable(self.catalog, NAME)
        return table

    def arguments(self) -> list[str]:
        return [NAME, "--format", "paimon", f"--table-option=warehouse={self.folder / 'paimon'}"]

    def rows(self) -> list[dict[str, Any]]:
        builder = self.catalog.get_table(NAME).new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        rows: list[dict[str, Any]] = [] if found is None else found.to_pylist()
        return rows

    def append(self, rows: pa.Table) -> None:
        table = self.catalog.get_table(NAME).copy({"snapshot.ignore-empty-commit": "false"})
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        if rows.num_rows:
            write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def create(self, schema: pa.Schema, *, partitioned: bool = False) -> None:
        schemas = import_module("pypaimon").Schema
        self.catalog.create_database("sales", True)
        keys = [PARTITION] if partitioned else None
        self.catalog.create_table(NAME, schemas.from_pyarrow_schema(schema, partition_keys=keys), False)

    def roll_back(self, commits: int) -> None:
        table = self.catalog.get_table(NAME)
        table.rollback_to(table.snapshot_manager().get_latest_snapshot().id - commits)

    def expire(self) -> None:
        snapshots = self.catalog.get_table(NAME).snapshot_manager()
        for number in range(1, snapshots.get_latest_snapshot().id):
            Path(str(snapshots.get_snapshot_path(number)).removeprefix("file:")).unlink()


LAKES: dict[str, tuple[str, type[Lake]]] = {
    "delta": ("deltalake", DeltaLake),
    "iceberg": ("pyiceberg", IcebergLake),
    "paimon": ("pypaimon", PaimonLake),
}


def lake_of(kind: str, folder: Path) -> Lake:
    """Skips without its package."""
    package, lake = LAKES[kind]
    pytest.importorskip(package)
    return lake(folder)
