"""Exports a bundle of slices to Parquet files, in the worker: records → Arrow → file.

When all files of a bundle are complete, they are renamed, then its progress is written. A bundle without progress
is repeated and replaces the same files. Nothing is written at the source. One thread.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from firearrow.spark_tools.arrow.columns import record_batches
from firearrow.spark_tools.arrow.parquet_writer import Layout, ParquetWriter
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import Source, SourceReader
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.losses import LOST_WHOLE, SliceLosses

READ_BYTES = 2 << 20
"""A chunk is scanned once for each column and should stay in a core's caches."""
BATCH_BYTES = 8 << 20
BATCH_RECORDS = 65536
BUNDLE_BYTES = 128 << 20
BUNDLE_BYTES_MIN = 8 << 20
BUNDLE_SLICES = 1000
SPREAD = 16
"""Number of bundles to aim for: fewer could not keep the cores busy."""


OUR_NAME = re.compile(r"(\.?)part-\d{6,}(-\d+)?\.parquet(\.\d+\.writing)?")
"""Names of files that an export writes, complete or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """Picklable; called in the worker with the slices of one bundle."""

    message_source: Source
    message_filter: MessageFilter
    folder: Path
    layout: Layout
    open_bodies: bool
    fail_on_data_loss: bool = True

    def __call__(self, slices: Sequence[Slice], progress_files: ProgressFiles) -> None:
        if all(progress_files.read(slice_).next >= slice_.part.end for slice_ in slices):
            return
        done: list[SliceProgress] = []
        with (
            self.message_source.open() as reader,
            ParquetWriter(self.folder, part_name(slices[0].number), self.layout) as part,
        ):
            for slice_ in slices:
                progress = progress_files.read(slice_)
                lost = progress.detail.get(LOST_WHOLE)
                done.append(progress if lost else self._write(reader, slice_, part))
            files = part.finish()
        done[0].detail["files"] = [asdict(file) for file in files]
        for progress in done:
            progress_files.write(progress)

    def _write(self, reader: SourceReader, slice_: Slice, part: ParquetWriter) -> SliceProgress:
        progress = SliceProgress(slice_.number, slice_.part.end)
        lost = SliceLosses(progress, self.fail_on_data_loss)
        message_filter = self.message_filter.of_columns(self.layout.read)
        for spans in reader.read(slice_.part, message_filter, lost, bytes_max=READ_BYTES):
            for batch in record_batches(
                spans,
                self.layout.read,
                slice_.part.queue.broker_name,
                open_bodies=self.open_bodies,
                on_data_loss=lost,
                count_max=BATCH_RECORDS,
                bytes_max=BATCH_BYTES,
            ):
                part.write(batch)
                progress.count("messages", batch.num_rows)
            progress.count("bytes", spans.bytes)
        return progress


def bundles(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Groups adjacent slices into bundles. The same slices give the same bundles."""
    total = sum(slice_.part.size for slice_ in slices)
    bundle_bytes = min(BUNDLE_BYTES, max(BUNDLE_BYTES_MIN, total // SPREAD))
    found: list[list[Slice]] = []
    filled = 0
    for slice_ in slices:
        if not found or filled + slice_.part.size > bundle_bytes or len(found[-1]) >= BUNDLE_SLICES:
            found.append([])
            filled = 0
        found[-1].append(slice_)
        filled += slice_.part.size
    return found


def part_name(number: int) -> str:
    """The name of a bundle's files, from the number of its first slice."""
    return f"part-{number:06}"
