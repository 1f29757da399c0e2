"""The driver of replay and redrive: plan, routes, tasks, verification, report.

The two jobs differ in source, routing and dropped properties. One thread.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.disk_errors import disk_errors
from firearrow.spark_tools.base.errors import TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange, Source
from firearrow.spark_tools.jobs import dry_run, planning, task_runner, verify_task
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, ProgressFiles, checkpoint
from firearrow.spark_tools.jobs.dry_run import DryRunTask
from firearrow.spark_tools.jobs.progress import shown
from firearrow.spark_tools.jobs.queue_mapping import Routing, writable
from firearrow.spark_tools.jobs.rate_limit import RateLimits
from firearrow.spark_tools.jobs.report import NOTHING_LEFT, Report, Watch
from firearrow.spark_tools.jobs.send_task import CONCURRENT_QUEUES, SendTask
from firearrow.spark_tools.jobs.task_runner import Work
from firearrow.spark_tools.jobs.verify_task import VerifyTask
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender

NOTHING_THERE = "the source has no messages in what was selected: nothing was sent"
Routed = tuple[Routing, list[str]]
"""Where messages go, and notes for the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob:
    job: str
    source: SourceArguments
    sending: TargetArguments
    running: RunArguments
    fingerprint: Mapping[str, Any]
    """A change of these makes it another job."""
    routed: Callable[[Sender, Sequence[QueueRange]], Routed]
    drop: frozenset[str]
    provenance: bool = True
    dry_run: bool = False
    verify: bool = False
    send: bool = True
    leaving: Routing | None = None
    """The routing, if it leaves messages."""

    def carry_out(self) -> Report:
        """InvalidOption, and errors of the source or the target; failures within tasks are in the report."""
        self.source.check()
        self.sending.check()
        if not self.dry_run:
            self.sending.cluster()
        self.running.check()
        watch = Watch()
        message_source, message_filter = (
            self.source.message_source(self.running.timeout_s),
            self.source.message_filter(),
        )
        job, folder = self.job, self.running.checkpoint
        if self.dry_run:
            job, folder = f"{job}-dry-run", folder and folder / "dry-run"
        with checkpoint(
            folder, job, self.fingerprint, partial(planning.planned, message_source, self.source)
        ) as job_checkpoint:
            report = Report(
                job=job,
                id=job_checkpoint.id,
                source=str(message_source),
                checkpoint=str(job_checkpoint.folder),
                resumed=job_checkpoint.resumed,
                arguments=self.fingerprint,
            )
            if self.send or self.dry_run:
                planning.lose_changed(job_checkpoint, message_source, self.source.fail_on_data_loss)
            if self.dry_run:
                self._count(job_checkpoint, message_source, message_filter, report)
            else:
                self._deliver(job_checkpoint, message_source, message_filter, report)
            report.seconds = watch.seconds
        return report

    def _count(
        self,
        job_checkpoint: Checkpoint,
        message_source: Source,
        message_filter: MessageFilter,
        report: Report,
    ) -> None:
        work = DryRunTask(
            message_source=message_source,
            message_filter=message_filter,
            fail_on_data_loss=self.source.fail_on_data_loss,
        )
        report.failures = self._run(
            job_checkpoint, job_checkpoint.progress_files, lambda _: work, whole_queues=False
        )
        report.add(job_checkpoint, job_checkpoint.progress_files.written())
        report.counts = dry_run.counts_by_tag_and_hour(
            job_checkpoint, job_checkpoint.progress_files.written()
        )
        if not report.failures:
            job_checkpoint.forget()

    def _deliver(
        self,
        job_checkpoint: Checkpoint,
        message_source: Source,
        message_filter: MessageFilter,
        report: Report,
    ) -> None:
        target = self.sending.cluster()
        report.target = str(target)
        if self.send and job_checkpoint.unfinished():
            with Sender(target, timeout_s=self.running.timeout_s) as sender:
                routing, report.notes = self.routed(sender, [slice_.part for slice_ in job_checkpoint.slices])
            work = partial(self._send_task, job_checkpoint, message_source, message_filter, target, routing)
            working = Watch()
            report.failures = self._run(
                job_checkpoint,
                job_checkpoint.progress_files,
                work,
                whole_queues=routing.in_order,
                concurrency=CONCURRENT_QUEUES,
            )
            report.working_s = working.seconds
        elif self.send:
            report.notes.append(NOTHING_LEFT if job_checkpoint.slices else NOTHING_THERE)
        report.add(job_checkpoint, job_checkpoint.progress_files.written())
        if self.verify and job_checkpoint.slices and not report.failures:
            self._verify(job_checkpoint, message_source, message_filter, target, report)
        if not job_checkpoint.slices:
            job_checkpoint.forget()

    def _send_task(
        self,
        job_checkpoint: Checkpoint,
        message_source: Source,
        message_filter: MessageFilter,
        target: Cluster,
        routing: Routing,
        at_a_time: int,
    ) -> Work:
        rates = RateLimits(self.sending.rate, self.sending.bytes_rate).shared(at_a_time)
        return SendTask(
            message_source=message_source,
            message_filter=message_filter,
            target=target,
            routing=routing,
            job=job_checkpoint.id,
            drop=self.drop,
            provenance=self.provenance,
            rates=rates,
            fail_on_data_loss=self.source.fail_on_data_loss,
            timeout_s=self.running.timeout_s,
        )

    def _verify(
        self,
        job_checkpoint: Checkpoint,
        message_source: Source,
        message_filter: MessageFilter,
        target: Cluster,
        report: Report,
    ) -> None:
        progress_files = ProgressFiles(job_checkpoint.folder / "verified")
        shutil.rmtree(progress_files.folder, ignore_errors=True)
        with disk_errors(progress_files.folder):
            progress_files.folder.mkdir()
        work = VerifyTask(
            message_source=message_source,
            message_filter=message_filter,
            target=BrokerSource(target, timeout_s=self.running.timeout_s),
            forwarded=job_checkpoint.progress_files,
            job=job_checkpoint.id,
            provenance=self.provenance,
            routing=self.leaving,
        )
        report.failures = self._run(job_checkpoint, progress_files, lambda _: work, whole_queues=False)
        report.verification = verify_task.verification_counts(
            progress_files.written(), "source offset" if self.provenance else "unique key"
        )

    def _run(
        self,
        job_checkpoint: Checkpoint,
        progress_files: ProgressFiles,
        work: Callable[[int], Work],
        *,
        whole_queues: bool,
        concurrency: int = 1,
    ) -> list[str]:
        """Process all slices that are not finished."""
        left = job_checkpoint.unfinished(progress_files)
        if task_runner.may_begin_here() and not (self.sending.rate or self.sending.bytes_rate):
            with shown(self.job, progress_files, job_checkpoint.slices, quiet=self.running.quiet):
                return task_runner.run_while_starting(
                    self.job,
                    left,
                    progress_files,
                    work(1),
                    whole_queues=whole_queues,
                    concurrency=concurrency,
                )
        spark = task_runner.context_for(self.job, left)
        cores = task_runner.cores(spark)
        tasks = task_runner.tasks_of(left, cores, whole_queues=whole_queues, concurrency=concurrency)
        at_a_time = max(1, min(len(tasks), cores))
        with shown(self.job, progress_files, job_checkpoint.slices, quiet=self.running.quiet):
            return task_runner.run(spark, tasks, progress_files, work(at_a_time))


def queues_at(
    sender: Sender, sending: TargetArguments, sources: Sequence[MessageQueue]
) -> tuple[dict[str, list[MessageQueue]], list[str]]:
    """The queues of each target topic, created with as many as the source has if `create_topics` is set; and
    notes on created topics."""
    renamed = sending.renamed()
    counts: dict[str, int] = {}
    for queue in sources:
        topic = renamed(queue.topic)
        counts[topic] = max(counts.get(topic, 0), queue.queue_id + 1)
    found, made = {}, []
    for topic, count in sorted(counts.items()):
        try:
            found[topic] = writable(sender, topic)
        except TopicNotFound as missing:
            if not sending.create_topics:
                raise TopicNotFound(f"{missing}; --create-topics creates it") from None
            names = sender.create_topic(topic, count)
            made.append(f"topic {topic} was made with {count} queues at {', '.join(names)}")
            found[topic] = writable(sender, topic)
    return found, made
