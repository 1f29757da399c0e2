"""export: writes messages of stores or of live topics to Parquet, in the workers. A program for spark-submit.

The folder gets the files, the checkpoint `_checkpoint` and, when everything is written, `_manifest.json`. If
it is killed, the same command resumes. The source is only read.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from firearrow._native.base.verbs import argument
from firearrow.spark_tools.arrow import columns as known
from firearrow.spark_tools.arrow.export_manifest import ExportedFile, ExportedRange, ExportManifest
from firearrow.spark_tools.arrow.parquet_writer import PARTITIONS, Layout
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs import planning, task_runner
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, Plan, SliceProgress, checkpoint
from firearrow.spark_tools.jobs.export_task import OUR_NAME, ExportTask, bundles
from firearrow.spark_tools.jobs.program import Program, finish, job_fingerprint
from firearrow.spark_tools.jobs.progress import shown
from firearrow.spark_tools.jobs.report import Report, Watch
from firearrow.spark_tools.plan.option_parsing import names

JOB = "export"
CHECKPOINT = "_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArguments:
    """Where the files go, what they contain, and their layout."""

    to: Path | None = argument(
        "--to",
        None,
        "folder of the export: a new one, or that of an interrupted export",
        metavar="FOLDER",
        type=Path,
    )
    columns: str | None = argument(
        "--columns", None, "columns, separated by commas (default all)", metavar="NAME,NAME"
    )
    partition_by: str = argument(
        "--partition-by", "topic,date", f"folders by {', '.join(PARTITIONS)}; or none (default %(default)s)"
    )
    open_bodies: bool = argument(
        "--open-bodies", True, "decompress bodies, or leave them as they are stored", off="--stored-bodies"
    )
    compression: str = argument(
        "--compression", "zstd", "zstd, snappy, gzip, lz4 or none (default %(default)s)"
    )
    level: int | None = argument("--level", None, "compression level of zstd, 1 to 22", metavar="N", type=int)

    def folder(self) -> Path:
        """InvalidOption."""
        if self.to is None:
            raise InvalidOption("--to: the folder of the export is required")
        return self.to.absolute()

    def as_text(self) -> dict[str, str]:
        """For the fingerprint of the export."""
        return {name: str(value) for name, value in self.as_json().items()}

    def as_json(self) -> dict[str, object]:
        """For the report and the manifest."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        return {name: value for name, value in shown.items() if value is not None}

    def layout(self) -> Layout:
        """InvalidOption."""
        chosen = known.column_names(tuple(names(self.columns))) if self.columns is not None else known.ALL
        by = () if self.partition_by == "none" else tuple(names(self.partition_by))
        return Layout(tuple(chosen), by, self.compression, self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportArguments:
    dry_run: bool = argument("--dry-run", False, "write nothing; show which ranges would be read")


def export(source: SourceArguments, files: FileArguments, running: RunArguments, own: ExportArguments) -> int:
    """Write messages of stores or of live topics to Parquet files. The same command resumes an interrupted job.

    firearrow spark export --path ~/firearrow/store --topic orders --to /data/orders
    firearrow spark export --namesrv a:9876 --topic orders --from 2026-01-31 --to /data/orders
    """
    source.check()
    running.check()
    watch, layout, folder = Watch(), files.layout(), files.folder()
    message_source = source.message_source(running.timeout_s)
    given = job_fingerprint(source, **files.as_text())
    shown_as = job_fingerprint(source, **files.as_json())
    report = Report(JOB, "", str(message_source), str(folder), shown_as)
    if own.dry_run:
        _count(report, planning.planned(message_source, source))
    else:
        checkpoint_folder = (running.checkpoint or folder / CHECKPOINT).absolute()
        _prepare(folder, checkpoint_folder)
        with checkpoint(
            checkpoint_folder, JOB, given, partial(planning.planned, message_source, source)
        ) as job_checkpoint:
            report.of(job_checkpoint)
            work = ExportTask(
                message_source=message_source,
                message_filter=source.message_filter(),
                folder=folder,
                layout=layout,
                open_bodies=files.open_bodies,
                fail_on_data_loss=source.fail_on_data_loss,
            )
            planning.lose_changed(job_checkpoint, message_source, source.fail_on_data_loss)
            _export(job_checkpoint, work, report, watch, quiet=running.quiet)
    report.seconds = watch.seconds
    return finish(report, running)


def _export(
    job_checkpoint: Checkpoint, work: ExportTask, report: Report, watch: Watch, *, quiet: bool
) -> None:
    """Export all unfinished bundles; then write the manifest, if none failed."""
    left = job_checkpoint.unfinished()
    numbers = {slice_.number for slice_ in left}
    tasks = [
        bundle
        for bundle in bundles(job_checkpoint.slices)
        if any(slice_.number in numbers for slice_ in bundle)
    ]
    if tasks:
        spark = task_runner.context_for(JOB, left)
        with shown(JOB, job_checkpoint.progress_files, job_checkpoint.slices, quiet=quiet):
            report.failures = task_runner.run(spark, tasks, job_checkpoint.progress_files, work)
    finished = list(job_checkpoint.progress_files.written())
    report.add(job_checkpoint, finished)
    if not report.failures:
        report.seconds = watch.seconds
        manifest = manifest_of(job_checkpoint, finished, report, work.layout)
        _clean(work.folder, {file.path for file in manifest.files})
        manifest.check_files(work.folder)
        report.notes.append(
            f"{len(manifest.files)} files, {manifest.bytes:,} bytes: {manifest.write(work.folder)}"
        )


def manifest_of(
    job_checkpoint: Checkpoint, finished: Sequence[SliceProgress], report: Report, layout: Layout
) -> ExportManifest:
    """The manifest of a finished export."""
    rows = {progress.number: progress.counts.get("messages", 0) for progress in finished}
    ranges, files = [], []
    details = {progress.number: progress.detail.get("files", []) for progress in finished}
    for part, bundle in enumerate(bundles(job_checkpoint.slices)):
        files += [ExportedFile(**file, part=part) for file in details.get(bundle[0].number, [])]
        for slice_ in bundle:
            queue, span = slice_.part.queue, slice_.part
            ranges.append(
                ExportedRange(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    span.start,
                    span.end,
                    rows[slice_.number],
                    part,
                )
            )
    return ExportManifest(
        job=job_checkpoint.id,
        source=report.source,
        started_ms=job_checkpoint.created_ms,
        finished_ms=time.time_ns() // 1_000_000,
        options=dict(report.arguments),
        columns=layout.columns,
        partition_by=layout.partition_by,
        ranges=tuple(ranges),
        files=tuple(files),
        lost=tuple(sorted(report.lost)),
        lost_messages=report.totals.get("lost", 0),
        lost_ranges=report.totals.get("lost_ranges", 0),
        seconds=report.seconds,
    )


def _prepare(folder: Path, checkpoint: Path) -> None:
    """A new folder, or one that an export with this checkpoint has begun."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strange = next((path.name for path in folder.iterdir() if path != checkpoint), None)
        begun = (checkpoint / "plan.json").exists()
    except OSError as fault:
        raise InvalidOption(f"--to: {folder} cannot be used: {fault.strerror}") from None
    if strange is not None and not begun:
        raise InvalidOption(
            f"--to: {folder} contains {strange}, which is not part of this export; choose a new folder"
        )


def _clean(folder: Path, files: set[str]) -> None:
    """Delete what killed attempts have left: files with our names that the manifest does not list."""
    for path in folder.rglob("*part-*"):
        if (
            OUR_NAME.fullmatch(path.name)
            and path.relative_to(folder).as_posix() not in files
            and path.is_file()
        ):
            path.unlink()


def _count(report: Report, plan: Plan) -> None:
    report.lost |= plan.lost
    for part in plan.ranges:
        report.count(part.queue.topic, {"offsets": len(part), "bytes": part.size})
    for topic, counts in plan.gone.items():
        report.count(topic, counts)
    report.notes.append(
        "nothing was written; bytes are those of the log, before the choice by tags, keys and SQL"
    )


cli = Program("export", export, (SourceArguments, FileArguments, RunArguments, ExportArguments))

if __name__ == "__main__":
    cli.main()
