"""The driver of replay and redrive: plan, routes, tasks, verification, report.

The two jobs differ in what is read, where it goes and what of it is dropped. One thread.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from firearrow.client import blocking
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
from firearrow.spark_tools.jobs.report import Report, Watch
from firearrow.spark_tools.jobs.send_task import CONCURRENT_QUEUES, SendTask
from firearrow.spark_tools.jobs.task_runner import Work
from firearrow.spark_tools.jobs.verify_task import VerifyTask
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.sender import Sender

Routed = tuple[Routing, list[str]]
"""Where messages go, and what people should know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob:
    job: str
    source: SourceArguments
    sending: TargetArguments
    running: RunArguments
    fingerprint: Mapping[str, Any]
    """What makes it another job if it changes."""
    routed: Callable[[Sender, Sequence[QueueRange]], Routed]
    drop: frozenset[str]
    provenance: bool = True
    dry_run: bool = False
    verify: bool = False
    send: bool = True
    leaving: Routing | None = None
    """The routing, if it leaves messages."""

    def carry_out(self) -> Report:
        """InvalidOption, and what the source or the target refuses; failures within tasks are in the
        report."""
        self.sending.check()
        self.running.check()
        watch = Watch()
        message_source, message_filter = (
            self.source.message_source(self.running.timeout_s),
            self.source.message_filter(),
        )
        job, place = self.job, self.running.checkpoint
        if self.dry_run:
            job, place = f"{job}-dry-run", place and place / "dry-run"
        with checkpoint(
            place, job, self.fingerprint, partial(planning.planned, message_source, self.source)
        ) as held:
            report = Report(
                job=job,
                id=held.id,
                source=str(message_source),
                checkpoint=str(held.folder),
                resumed=held.resumed,
                arguments=self.fingerprint,
            )
            if self.dry_run:
                self._count(held, message_source, message_filter, report)
            else:
                self._deliver(held, message_source, message_filter, report)
            report.seconds = watch.seconds
        if self.running.report is not None:
            report.write(self.running.report)
        return report

    def _count(
        self, held: Checkpoint, message_source: Source, message_filter: MessageFilter, report: Report
    ) -> None:
        work = DryRunTask(
            message_source=message_source,
            message_filter=message_filter,
            fail_on_data_loss=self.source.fail_on_data_loss,
        )
        report.failures = self._run(held, held.marks, lambda _: work, whole_queues=False)
        report.add(held, held.marks.written())
        report.counts = dry_run.told(held, held.marks.written())
        if not report.failures:
            held.forget()

    def _deliver(
        self, held: Checkpoint, message_source: Source, message_filter: MessageFilter, report: Report
    ) -> None:
        target = self.sending.cluster()
        report.target = str(target)
        if self.send and held.unfinished():
            with Sender(target, timeout_s=self.running.timeout_s) as sender:
                routing, report.notes = self.routed(sender, [piece.part for piece in held.slices])
            work = partial(self._forwarding, held, message_source, message_filter, target, routing)
            task_runner.context(self.job)
            working = Watch()
            report.failures = self._run(
                held, held.marks, work, whole_queues=routing.in_order, abreast=CONCURRENT_QUEUES
            )
            report.working_s = working.seconds
        elif self.send:
            report.notes.append("everything is done already; use another --checkpoint to do it again")
        report.add(held, held.marks.written())
        if self.verify and not report.failures:
            self._verify(held, message_source, message_filter, target, report)

    def _forwarding(
        self,
        held: Checkpoint,
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
            job=held.id,
            drop=self.drop,
            provenance=self.provenance,
            rates=rates,
            fail_on_data_loss=self.source.fail_on_data_loss,
            timeout_s=self.running.timeout_s,
        )

    def _verify(
        self,
        held: Checkpoint,
        message_source: Source,
        message_filter: MessageFilter,
        target: Cluster,
        report: Report,
    ) -> None:
        marks = ProgressFiles(held.folder / "verified")
        shutil.rmtree(marks.folder, ignore_errors=True)
        with disk_errors(marks.folder):
            marks.folder.mkdir()
        work = VerifyTask(
            message_source=message_source,
            message_filter=message_filter,
            target=BrokerSource(target, timeout_s=self.running.timeout_s),
            forwarded=held.marks,
            job=held.id,
            provenance=self.provenance,
            routing=self.leaving,
        )
        report.failures = self._run(held, marks, lambda _: work, whole_queues=False)
        report.verification = verify_task.verification_counts(
            marks.written(), "source offset" if self.provenance else "unique key"
        )

    def _run(
        self,
        held: Checkpoint,
        marks: ProgressFiles,
        work: Callable[[int], Work],
        *,
        whole_queues: bool,
        abreast: int = 1,
    ) -> list[str]:
        """Everything that the marks do not have yet."""
        spark = task_runner.context(self.job)
        left = held.unfinished(marks)
        tasks = task_runner.tasks_of(
            left, spark.defaultParallelism, whole_queues=whole_queues, abreast=abreast
        )
        at_a_time = max(1, min(len(tasks), spark.defaultParallelism))
        with shown(self.job, marks, held.slices, quiet=self.running.quiet):
            return task_runner.run(spark, tasks, marks, work(at_a_time))


def queues_at(
    sender: Sender, sending: TargetArguments, sources: Sequence[MessageQueue]
) -> tuple[dict[str, list[MessageQueue]], list[str]]:
    """The queues of each target topic, made with as many as the source has if that is wanted; and what was
    made."""
    renamed = sending.renamed()
    wanted: dict[str, int] = {}
    for queue in sources:
        topic = renamed(queue.topic)
        wanted[topic] = max(wanted.get(topic, 0), queue.queue_id + 1)
    found, made = {}, []
    for topic, count in sorted(wanted.items()):
        try:
            found[topic] = writable(sender, topic)
        except TopicNotFound as missing:
            if not sending.create_topics:
                raise TopicNotFound(f"{missing}; --create-topics creates it") from None
            with blocking.Admin(client=sending.cluster().options()) as admin:
                names = admin.create_topic(topic, count)
            made.append(f"topic {topic} was made with {count} queues at {', '.join(names)}")
            found[topic] = writable(sender, topic)
    return found, made
