"""Appends what is new in the log to a table: rows and offsets in one commit, so that none is there twice or missing.

A run reads up to the ends of the queues that it finds at its start, in commits of about `maxBytesPerTrigger`. It plans
and reads as a stream does, with the offsets of the table in place of a checkpoint: the rules for data loss, recreated
topics and new queues are the same. Each commit must follow the state of the table from which its offsets were read, so
of two runs at once one fails.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from firearrow.client.base.errors import ClientError
from firearrow.spark_tools.arrow import columns as message_columns
from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption, WriteFailed
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.lake.progress import HistoryExpired, LakeTable, Progress, TableChanged
from firearrow.spark_tools.plan.data_loss import FailFast
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from firearrow.spark_tools.plan.stream_offsets import StreamCursor
from firearrow.spark_tools.tables.dataset import RocketMQDataset, Where, dataset_of
from firearrow.spark_tools.tables.tail import batches_between

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

COMMIT_BYTES = "1g"
DEFAULTS = {"maxBytesPerTrigger": COMMIT_BYTES}
STARTS = {"since", "startingTimestamp", "startingOffsets", "startingOffsetsByTimestamp"}
ATTEMPTS = 5
"""How often a commit is tried if others, such as compaction, commit at the same time. Its rows are read again."""
log = logging.getLogger("firearrow.spark")


@dataclass(slots=True)
class Exported:
    """What one run has appended. `lost`: messages that were missing, with `failOnDataLoss=False`."""

    job: str
    rows: int = 0
    commits: int = 0
    lost: int = 0


def to_delta(
    source: Where,
    topic: str | Sequence[str] | None,
    uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    job: str | None = None,
    restart: bool = False,
    **options: Any,  # noqa: ANN401 (those of `dataset`)
) -> Exported:
    """Append what is new to the Delta table at `uri`, which is created if needed. `job`: the name under which the table
    keeps the offsets, by default the topics. `restart`: ignore the table's offsets. Other arguments as for `tail`, but
    a new export starts at the earliest message. TableChanged, HistoryExpired, DataLoss, InvalidOption, WriteFailed."""
    with _needs("delta"):
        from firearrow.spark_tools.lake.delta import DeltaLakeTable  # noqa: PLC0415 (an extra, as those below)

    return append_new(DeltaLakeTable(uri, storage_options), source, topic, job, restart, options)


def to_iceberg(
    source: Where,
    topic: str | Sequence[str] | None,
    identifier: str,
    *,
    catalog: "Catalog | str" = "default",
    catalog_options: Mapping[str, str] | None = None,
    job: str | None = None,
    restart: bool = False,
    **options: Any,  # noqa: ANN401 (those of `dataset`)
) -> Exported:
    """Append what is new to the Iceberg table `NAMESPACE.TABLE`, as `to_delta`. `catalog`: one of PyIceberg, or its
    name in PyIceberg's configuration, to which `catalog_options` are added."""
    with _needs("iceberg"):
        from firearrow.spark_tools.lake.iceberg import IcebergTable, catalog_of  # noqa: PLC0415

    found = catalog_of(catalog, catalog_options or {}) if isinstance(catalog, str) else catalog
    return append_new(IcebergTable(found, identifier), source, topic, job, restart, options)


def to_paimon(
    source: Where,
    topic: str | Sequence[str] | None,
    identifier: str,
    *,
    catalog_options: Mapping[str, str],
    job: str | None = None,
    restart: bool = False,
    **options: Any,  # noqa: ANN401 (those of `dataset`)
) -> Exported:
    """Append what is new to the Paimon table `DATABASE.TABLE`, as `to_delta`. `catalog_options`: PyPaimon's, such as
    `{"warehouse": "/data/lake"}`."""
    with _needs("paimon"):
        from firearrow.spark_tools.lake.paimon import PaimonTable, catalog_of  # noqa: PLC0415

    return append_new(
        PaimonTable(catalog_of(catalog_options), identifier), source, topic, job, restart, options
    )


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    """InvalidOption: the packages of this extra are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise InvalidOption(f"the package {package} is missing: pip install 'firearrow[{extra}]'") from None


def append_new(
    table: LakeTable,
    source: Where,
    topic: str | Sequence[str] | None,
    job: str | None,
    restart: bool,
    options: Mapping[str, Any],
) -> Exported:
    """What `to_delta` and the others do."""
    given = {name: value for name, value in options.items() if value is not None}
    start = {} if STARTS & given.keys() else {"startingOffsets": "earliest"}
    found = dataset_of(source, topic, STREAM, DEFAULTS | start | given)
    return LakeExport(table, found, job or job_name(found.options), restart=restart).run()


def job_name(options: SourceOptions) -> str:
    return (
        ",".join(sorted({*options.topic, *options.topics}))
        or options.pattern
        or ("assigned queues" if options.assign else "all topics")
    )


def selection(options: SourceOptions) -> dict[str, Any]:
    """The options that select messages, as JSON."""
    return {
        "topics": sorted({*options.topic, *options.topics}),
        "pattern": options.pattern,
        "assign": [[each.topic, each.broker_name, sorted(each.queue_ids)] for each in options.assign],
        "tags": sorted(options.tags),
        "keys": sorted(options.keys),
        "sql": options.sql,
    }


class LakeExport:
    """One run. One thread."""

    def __init__(self, table: LakeTable, found: RocketMQDataset, job: str, *, restart: bool = False) -> None:
        self._table = table
        self._dataset = found
        self._restart = restart
        self._selection = selection(found.options)
        self.exported = Exported(job)
        self._lost_ranges: set[QueueRange] = set()
        self._losses = FailFast(found.options.fail_on_loss, self._count_lost)

    def run(self) -> Exported:
        known = self._progress()
        if known is not None and not self._restart:
            self._check_selection(known)
        self._choose_columns()
        options = self._dataset.options
        cursor = StreamCursor(self._dataset.source, options, lost=self._count_lost)
        try:
            cursor.pin()
            begun = known is not None and not self._restart
            at = known.offsets if known is not None and begun else cursor.first()
            while (end := cursor.end(at, limited=True)) is not at or not begun:
                known = self._append(cursor, known, at, end)
                at, begun = end, True
        finally:
            cursor.close()
        return self.exported

    def _check_selection(self, known: Progress) -> None:
        """InvalidOption: the job has taken other messages."""
        if known.selection != self._selection:
            raise InvalidOption(
                f"{self._table}: the export {known.job!r} has taken other messages so far, {known.selection}; give the "
                "same topics, tags, keys and sql, or another name: job, or --job"
            )

    def _choose_columns(self) -> None:
        """Those of the table, if none were asked for. InvalidOption: it has none of these."""
        there = self._table.columns()
        if there is not None and not self._dataset.options.columns:
            names = [name for name in there if name in self._dataset.names]
            if not names:
                raise InvalidOption(
                    f"{self._table}: has none of the columns {', '.join(self._dataset.names)}"
                )
            self._dataset.names = message_columns.column_names(names)

    def _append(
        self, cursor: StreamCursor, known: Progress | None, start: StreamOffsets, end: StreamOffsets
    ) -> Progress:
        """One commit. `known`: what the table has now. TableChanged: it has another one meanwhile."""
        new = Progress(self.exported.job, end, self._selection)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.exported.rows += self._written(cursor, start, end, new)
                self.exported.commits += 1
                return new
            except TableChanged as error:
                if _text(self._progress()) != _text(known):
                    raise TableChanged(
                        f"{self._table}: another run of the export {new.job!r} has committed, or the table was rolled "
                        "back, since this run started; run it again"
                    ) from None
                if attempt == ATTEMPTS:
                    raise
                log.info("%s; the rows are read again (attempt %d)", error, attempt + 1)
        raise AssertionError

    def _written(self, cursor: StreamCursor, start: StreamOffsets, end: StreamOffsets, new: Progress) -> int:
        """The number of rows. WriteFailed: an error of the table's library."""
        failures: list[Exception] = []
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            try:
                for batch in batches_between(self._dataset, cursor, start, end, self._losses):
                    rows += batch.num_rows
                    yield batch
            except Exception as error:  # libraries make another one of it
                failures.append(error)
                raise

        schema = message_columns.schema(self._dataset.names)
        with self._own_errors(failures):
            self._table.append(pa.RecordBatchReader.from_batches(schema, counted()), new)
        return rows

    def _count_lost(self, part: QueueRange, _why: str) -> None:
        """Once for each range, also if it is read again."""
        if part not in self._lost_ranges:
            self._lost_ranges.add(part)
            self.exported.lost += len(part)

    def _progress(self) -> Progress | None:
        with self._own_errors([]):
            try:
                return self._table.progress(self.exported.job)
            except HistoryExpired:
                if not self._restart:
                    raise
        return None

    @contextmanager
    def _own_errors(self, failures: Sequence[Exception]) -> Iterator[None]:
        """Libraries have no common base of errors: theirs become a WriteFailed, or the one of `failures` that caused
        them."""
        try:
            yield
        except (*REFUSALS, ClientError):
            raise
        except Exception as error:
            if failures:
                raise failures[0] from None
            raise WriteFailed(f"{self._table}: {type(error).__name__}: {error}") from error


def _text(progress: Progress | None) -> str | None:
    return None if progress is None else progress.text()
