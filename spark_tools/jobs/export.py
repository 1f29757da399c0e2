"""export: writes messages of stores or of live topics to Parquet, in the workers. A program for spark-submit.

The folder gets the files, the checkpoint `_checkpoint` and, when everything is written, `_manifest.json`. If
it is killed, the same command resumes. The source is only read.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from firearrow.spark_tools.arrow import columns as known
from firearrow.spark_tools.arrow.export_manifest import ExportedFile, ExportedRange, ExportManifest
from firearrow.spark_tools.arrow.parquet_writer import PARTITIONS, Layout
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs import planning, task_runner
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, Plan, SliceProgress, checkpoint
from firearrow.spark_tools.jobs.export_task import OUR_NAME, ExportTask, bundles
from firearrow.spark_tools.jobs.program import expand_argument_groups, finish, job_fingerprint, program
from firearrow.spark_tools.jobs.progress import shown
from firearrow.spark_tools.jobs.report import Report, Watch
from firearrow.spark_tools.plan.option_parsing import names

JOB = "export"
CHECKPOINT = "_checkpoint"
Option = typer.Option
cli = program()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArguments:
    """Where the files go, what they contain, and their layout."""

    to: Annotated[
        Path | None,
        Option("--to", help="Folder of the export: a new one, or that of one that was cut short."),
    ] = None
    columns: Annotated[
        str | None, Option("--columns", help="Columns, separated by commas  [default: all]")
    ] = None
    partition_by: Annotated[
        str, Option("--partition-by", help=f"Folders by {', '.join(PARTITIONS)}; or none.")
    ] = "topic,date"
    open_bodies: Annotated[
        bool,
        Option(
            "--open-bodies/--stored-bodies", help="Compressed bodies are opened, or left as they are stored."
        ),
    ] = True
    compression: Annotated[str, Option("--compression", help="zstd, snappy, gzip, lz4 or none.")] = "zstd"
    level: Annotated[int | None, Option("--level", help="Of zstd, 1 to 22.")] = None

    def folder(self) -> Path:
        """InvalidOption."""
        if self.to is None:
            raise InvalidOption("--to: the folder of the export is required")
        return self.to.absolute()

    def as_text(self) -> dict[str, object]:
        """For the report, and for what makes it another export."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in given.items() if value is not None}

    def layout(self) -> Layout:
        """InvalidOption."""
        chosen = known.column_names(tuple(names(self.columns))) if self.columns is not None else known.ALL
        by = () if self.partition_by == "none" else tuple(names(self.partition_by))
        return Layout(tuple(chosen), by, self.compression, self.level)


@cli.command()
@expand_argument_groups
def export(
    source: SourceArguments,
    files: FileArguments,
    running: RunArguments,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Write nothing: say which ranges would be read.")
    ] = False,
) -> None:
    """Write messages of stores or of live topics to Parquet files."""
    running.check()
    watch, layout, folder = Watch(), files.layout(), files.folder()
    message_source = source.message_source(running.timeout_s)
    given = job_fingerprint(source, **files.as_text())
    report = Report(JOB, "", str(message_source), str(folder), given)
    if dry_run:
        _count(report, planning.planned(message_source, source))
    else:
        place = (running.checkpoint or folder / CHECKPOINT).absolute()
        _prepare(folder, place)
        with checkpoint(place, JOB, given, partial(planning.planned, message_source, source)) as held:
            report.id, report.checkpoint, report.resumed = held.id, str(held.folder), held.resumed
            work = ExportTask(
                message_source=message_source,
                message_filter=source.message_filter(),
                folder=folder,
                layout=layout,
                open_bodies=files.open_bodies,
                fail_on_data_loss=source.fail_on_data_loss,
            )
            _export(held, work, report, quiet=running.quiet)
    report.seconds = watch.seconds
    if running.report is not None:
        report.write(running.report)
    finish(report)


def _export(held: Checkpoint, work: ExportTask, report: Report, *, quiet: bool) -> None:
    """All bundles that are not finished; then the manifest, if none was refused."""
    left = {piece.number for piece in held.unfinished()}
    tasks = [bundle for bundle in bundles(held.slices) if any(piece.number in left for piece in bundle)]
    if tasks:
        with shown(JOB, held.marks, held.slices, quiet=quiet):
            report.failures = task_runner.run(task_runner.context(JOB), tasks, held.marks, work)
    marks = list(held.marks.written())
    report.add(held, marks)
    if not report.failures:
        manifest = manifest_of(held, marks, report, work.layout)
        _clean(work.folder, {file.path for file in manifest.files})
        manifest.check_files(work.folder)
        report.notes.append(
            f"{len(manifest.files)} files, {manifest.bytes:,} bytes: {manifest.write(work.folder)}"
        )


def manifest_of(
    held: Checkpoint, marks: Sequence[SliceProgress], report: Report, layout: Layout
) -> ExportManifest:
    """What the marks of a finished export say."""
    rows = {mark.number: mark.counts.get("messages", 0) for mark in marks}
    ranges, files = [], []
    details = {mark.number: mark.detail.get("files", []) for mark in marks}
    for part, bundle in enumerate(bundles(held.slices)):
        files += [ExportedFile(**file, part=part) for file in details.get(bundle[0].number, [])]
        for piece in bundle:
            queue, span = piece.part.queue, piece.part
            ranges.append(
                ExportedRange(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    span.start,
                    span.end,
                    rows[piece.number],
                    part,
                )
            )
    return ExportManifest(
        job=held.id,
        source=report.source,
        started_ms=held.created_ms,
        finished_ms=time.time_ns() // 1_000_000,
        options={name: str(value) for name, value in report.arguments.items()},
        columns=layout.columns,
        partition_by=layout.partition_by,
        ranges=tuple(ranges),
        files=tuple(files),
        lost=tuple(sorted(report.lost)),
        lost_messages=report.totals.get("lost", 0),
        lost_ranges=report.totals.get("lost_ranges", 0),
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
    """Take away what attempts that were killed have left: files of our names that the manifest does not
    list."""
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


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
