"""Exports a bundle of slices to Parquet files, in the worker: records → Arrow → file.

When all files of a bundle are complete, they are renamed, then its marks are written. A bundle without marks
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
from firearrow.spark_tools.jobs.losses import SliceLosses

READ_BYTES = 2 << 20
"""A chunk is scanned once for each column and should stay in a core's caches."""
BATCH_BYTES = 8 << 20
BATCH_RECORDS = 65536
BUNDLE_BYTES = 128 << 20
BUNDLE_BYTES_MIN = 8 << 20
BUNDLE_SLICES = 1000
SPREAD = 16
"""Bundles that are made where there is enough for each: fewer could not keep the cores busy."""


OUR_NAME = re.compile(r"(\.?)part-\d{6,}(-\d+)?\.parquet(\.\d+\.writing)?")
"""Of files that an export writes, whole or not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """Picklable; called in the worker with the slices of one bundle."""

    message_source: Source
    message_filter: MessageFilter
    folder: Path
    layout: Layout
    open_bodies: bool
    fail_on_data_loss: bool = True

    def __call__(self, slices: Sequence[Slice], marks: ProgressFiles) -> None:
        if all(marks.read(piece).next >= piece.part.end for piece in slices):
            return
        done: list[SliceProgress] = []
        with (
            self.message_source.open() as reader,
            ParquetWriter(self.folder, part_name(slices[0].number), self.layout) as part,
        ):
            for piece in slices:
                done.append(self._write(reader, piece, part))
            files = part.finish()
        done[0].detail["files"] = [asdict(file) for file in files]
        for mark in done:
            marks.write(mark)

    def _write(self, reader: SourceReader, piece: Slice, part: ParquetWriter) -> SliceProgress:
        mark = SliceProgress(piece.number, piece.part.end)
        lost = SliceLosses(mark, self.fail_on_data_loss)
        message_filter = self.message_filter.of_columns(self.layout.read)
        for spans in reader.read(piece.part, message_filter, lost, bytes_max=READ_BYTES):
            for batch in record_batches(
                spans,
                self.layout.read,
                piece.part.queue.broker_name,
                open_bodies=self.open_bodies,
                count_max=BATCH_RECORDS,
                bytes_max=BATCH_BYTES,
            ):
                part.write(batch)
            mark.count("messages", len(spans))
            mark.count("bytes", spans.bytes)
        return mark


def bundles(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Neighbouring slices, put together as one part each. The same slices give the same bundles."""
    total = sum(piece.part.size for piece in slices)
    room = min(BUNDLE_BYTES, max(BUNDLE_BYTES_MIN, total // SPREAD))
    found: list[list[Slice]] = []
    filled = 0
    for piece in slices:
        if not found or filled + piece.part.size > room or len(found[-1]) >= BUNDLE_SLICES:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += piece.part.size
    return found


def part_name(number: int) -> str:
    """Of the files of the bundle whose first slice has that number."""
    return f"part-{number:06}"
