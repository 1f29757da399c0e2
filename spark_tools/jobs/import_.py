"""import: sends messages from Parquet files to topics of a cluster. A program for spark-submit.

Takes an export by its manifest, or any Parquet with a column `body`. Keeps the order of queues by
default. If it is killed, the same command resumes. The files are only read.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from firearrow._native.base.verbs import argument
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.arrow.batch_sender import SinkSettings
from firearrow.spark_tools.arrow.message_columns import check_columns, check_provenance
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.arguments import RunArguments, TargetArguments, as_text
from firearrow.spark_tools.jobs.checkpoint import (
    Checkpoint,
    InvalidCheckpoint,
    Slice,
    SliceProgress,
    checkpoint,
)
from firearrow.spark_tools.jobs.import_task import ImportTask
from firearrow.spark_tools.jobs.parquet_input import ParquetInput, parquet_input, queues_in, topic_rows
from firearrow.spark_tools.jobs.program import Program, finish
from firearrow.spark_tools.jobs.progress import shown
from firearrow.spark_tools.jobs.rate_limit import RateLimits
from firearrow.spark_tools.jobs.report import NOTHING_LEFT, Report, Watch
from firearrow.spark_tools.jobs.send_job import queues_at
from firearrow.spark_tools.live.sender import Sender

JOB = "import"
NO_ROWS = "the files have no rows: nothing was sent"
CHANGEABLE = frozenset({"rate", "bytes_rate", "create_topics", "target_settings"})
"""Arguments that may change between runs of the same job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportArguments:
    """What to send, and how."""

    parquet: Path | None = argument(
        "--parquet",
        None,
        "folder of an export, or a folder or file of other Parquet",
        metavar="PATH",
        type=Path,
    )
    unordered: bool = argument(
        "--unordered", False, "do not keep the order of queues; send files to any queues, in parallel"
    )
    check_files: bool = argument(
        "--check-files", False, "first compare every byte with the export's manifest"
    )
    provenance: bool = argument(
        "--provenance", True, "add REPLAY_* properties, if the files have the columns for them"
    )
    dry_run: bool = argument("--dry-run", False, "send nothing; show what would be sent")


def import_(sending: TargetArguments, running: RunArguments, own: ImportArguments) -> int:
    """Send messages of Parquet files to topics. Queues keep their order, and the same command resumes an interrupted
    job.

        firearrow spark import --parquet /data/orders --target 127.0.0.1:9876 --create-topics
        firearrow spark import --parquet rows.parquet --to-topic orders --target 127.0.0.1:9876 --dry-run
    """
    sending.check()
    running.check()
    if own.parquet is None:
        raise InvalidOption("--parquet: a folder or file of Parquet is required")
    watch, path = Watch(), own.parquet.absolute()
    found = parquet_input(path, contents=own.check_files, ordered=not own.unordered)
    given = as_text(sending) | {
        "parquet": str(path),
        "unordered": own.unordered,
        "provenance": own.provenance,
    }
    report = Report(JOB, "", found.source, sending.target or "", given)
    sink_settings = _sink_settings(found, sending, own.unordered)
    if own.dry_run:
        _count(report, found, sink_settings.topic or "")
    else:
        same = {name: value for name, value in given.items() if name not in CHANGEABLE}
        with checkpoint(
            running.checkpoint, JOB, same, lambda: [file_range.part for file_range in found.file_ranges]
        ) as job_checkpoint:
            report.of(job_checkpoint)
            if own.provenance:
                sink_settings = replace(sink_settings, job=_job(job_checkpoint, found, report))
            _import(job_checkpoint, found, sink_settings, sending, running, report)
    report.seconds = watch.seconds
    return finish(report, running)


def _sink_settings(found: ParquetInput, sending: TargetArguments, unordered: bool) -> SinkSettings:
    """How rows become messages. InvalidOption: a file's columns cannot be sent."""
    names = [text for text in sending.to_topic or () if "=" not in text]
    in_rows = all("topic" in schema.names for schema in found.schemas)
    sink_settings = SinkSettings(
        topic=names[0] if names and not in_rows else None,
        queues=QueueIdUse.ANY if unordered else QueueIdUse.MODULO,
        packed_bodies=found.packed,
    )
    for schema in found.schemas:
        check_columns(schema, sink_settings.topic, packed=sink_settings.packed_bodies)
    return sink_settings


def _job(job_checkpoint: Checkpoint, found: ParquetInput, report: Report) -> str | None:
    """The job's name for provenance; None, and a note, if rows do not have their source."""
    try:
        for schema in found.schemas:
            check_provenance(schema, "--provenance")
    except InvalidOption as fault:
        report.notes.append(f"sent without REPLAY_* properties: {fault}")
        return None
    return job_checkpoint.id


def _import(
    job_checkpoint: Checkpoint,
    found: ParquetInput,
    sink_settings: SinkSettings,
    sending: TargetArguments,
    running: RunArguments,
    report: Report,
) -> None:
    tasks = _tasks(job_checkpoint, found)
    if tasks:
        target = sending.cluster()
        sources = (
            [MessageQueue(sink_settings.topic, "", 0)]
            if sink_settings.topic
            else sorted(found.queues or queues_in(found))
        )
        with Sender(target, timeout_s=running.timeout_s) as sender:
            report.notes += queues_at(sender, sending, sources)[1]
        spark = task_runner.context(JOB)
        at_a_time = max(1, min(len(tasks), spark.defaultParallelism))
        work = ImportTask(
            file_ranges={file_range.name: file_range for file_range in found.file_ranges},
            target=target,
            sink_settings=sink_settings,
            renamed=sending.renamed(),
            job=job_checkpoint.id,
            timeout_s=running.timeout_s,
            rates=RateLimits(sending.rate, sending.bytes_rate).shared(at_a_time),
        )
        with shown(JOB, job_checkpoint.progress_files, job_checkpoint.slices, quiet=running.quiet):
            report.failures = task_runner.run(spark, tasks, job_checkpoint.progress_files, work)
    else:
        report.notes.append(NOTHING_LEFT if _has_rows(job_checkpoint) else NO_ROWS)
    add_counts(report, job_checkpoint, job_checkpoint.progress_files.written())
    if not _has_rows(job_checkpoint):
        job_checkpoint.forget()


def _has_rows(job_checkpoint: Checkpoint) -> bool:
    return any(len(slice_.part) for slice_ in job_checkpoint.slices)


def add_counts(report: Report, job_checkpoint: Checkpoint, written: Iterable[SliceProgress]) -> None:
    """What was sent, by the topic in the rows. Progress files of earlier versions count by file only."""
    for progress in written:
        part = job_checkpoint.slices[progress.number].part
        rest = Counter(progress.counts) + Counter(offsets=progress.next - part.start)
        for topic, counts in progress.detail.get("topics", {}).items():
            found = {**counts, "offsets": counts["messages"]}
            report.count(topic, found)
            rest.subtract(found)
        if rest["messages"] > 0:
            report.count(part.queue.topic, rest)


def _tasks(job_checkpoint: Checkpoint, found: ParquetInput) -> list[list[Slice]]:
    """A task for each unfinished chain. InvalidCheckpoint: the files are not those of the plan."""
    if [slice_.part for slice_ in job_checkpoint.slices] != [
        file_range.part for file_range in found.file_ranges
    ]:
        raise InvalidCheckpoint(
            f"{job_checkpoint.folder}: was started with other files than {found.source} has now; "
            "choose another --checkpoint"
        )
    numbered = iter(job_checkpoint.slices)
    left = {slice_.number for slice_ in job_checkpoint.unfinished()}
    chains = [[next(numbered) for _ in chain] for chain in found.chains]
    return [
        task for task in ([slice_ for slice_ in chain if slice_.number in left] for chain in chains) if task
    ]


def _count(report: Report, found: ParquetInput, otherwise: str) -> None:
    for file_range in found.file_ranges:
        by_topic: Counter[str] = Counter()
        for file in file_range.files:
            rows = topic_rows(file, otherwise)
            by_topic += rows
            for topic in rows:
                report.count(topic, {"files": 1})
        for topic, count in by_topic.items():
            size = file_range.bytes * count // max(1, file_range.rows)
            report.count(topic, {"messages": count, "bytes": size})
    report.totals["files"] = sum(len(file_range.files) for file_range in found.file_ranges)
    report.notes.append("nothing was sent; bytes are those of the files")


cli = Program("import", import_, (TargetArguments, RunArguments, ImportArguments))

if __name__ == "__main__":
    cli.main()
