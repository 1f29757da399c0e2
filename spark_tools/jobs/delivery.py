"""Delivery: the whole of a job that forwards, in the driver: plan, routes, tasks, verification, report.

Replay and redrive are deliveries; they differ in what is read, where it goes and what of it is dropped. One thread.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from firearrow.client import blocking
from firearrow.client.message import MessageQueue
from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.errors import TopicMissing
from firearrow.spark_tools.jobs import counting, lane, planning, verifying
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments
from firearrow.spark_tools.jobs.counting import Counting
from firearrow.spark_tools.jobs.forwarding import QUEUES_ABREAST, Forwarding
from firearrow.spark_tools.jobs.lane import Work
from firearrow.spark_tools.jobs.marks import Checkpoint, Marks, checkpoint
from firearrow.spark_tools.jobs.pace import Rates
from firearrow.spark_tools.jobs.progress import shown
from firearrow.spark_tools.jobs.report import Report, Watch
from firearrow.spark_tools.jobs.routing import Routing, writable
from firearrow.spark_tools.jobs.verifying import Verifying
from firearrow.spark_tools.live.origin import BrokerOrigin
from firearrow.spark_tools.live.sender import Sender
from firearrow.spark_tools.live.target import Target
from firearrow.spark_tools.origin import Origin, QueueRange
from firearrow.spark_tools.room import writing

Routed = tuple[Routing, list[str]]
"""Where messages go, and what people should know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    job: str
    source: SourceArguments
    sending: TargetArguments
    running: RunArguments
    digested: Mapping[str, Any]
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
        """OptionWrong and what the source or the target refuses; failures within tasks are in the report."""
        self.sending.check()
        self.running.check()
        watch = Watch()
        origin, choice = self.source.origin(self.running.timeout_s), self.source.choice()
        job, place = self.job, self.running.checkpoint
        if self.dry_run:
            job, place = f"{job}-dry-run", place and place / "dry-run"
        with checkpoint(place, job, self.digested, partial(planning.planned, origin, self.source)) as held:
            report = Report(
                job=job, id=held.id, source=str(origin), checkpoint=str(held.folder), resumed=held.resumed,
                arguments=self.digested,
            )  # fmt: skip
            if self.dry_run:
                self._count(held, origin, choice, report)
            else:
                self._deliver(held, origin, choice, report)
            report.seconds = watch.seconds
        if self.running.report is not None:
            report.write(self.running.report)
        return report

    def _count(self, held: Checkpoint, origin: Origin, choice: Choice, report: Report) -> None:
        work = Counting(origin=origin, choice=choice, fail_on_data_loss=self.source.fail_on_data_loss)
        report.failures = self._run(held, held.marks, lambda _: work, whole_queues=False)
        report.add(held, held.marks.written())
        report.counts = counting.told(held, held.marks.written())
        if not report.failures:
            held.forget()

    def _deliver(self, held: Checkpoint, origin: Origin, choice: Choice, report: Report) -> None:
        target = self.sending.cluster()
        report.target = str(target)
        if self.send and held.unfinished():
            with Sender(target, timeout_s=self.running.timeout_s) as sender:
                routing, report.notes = self.routed(sender, [piece.part for piece in held.slices])
            work = partial(self._forwarding, held, origin, choice, target, routing)
            lane.context(self.job)
            working = Watch()
            report.failures = self._run(
                held, held.marks, work, whole_queues=routing.in_order, abreast=QUEUES_ABREAST
            )
            report.working_s = working.seconds
        elif self.send:
            report.notes.append("nothing was left to do: give another --checkpoint to do it again")
        report.add(held, held.marks.written())
        if self.verify and not report.failures:
            self._verify(held, origin, choice, target, report)

    def _forwarding(
        self,
        held: Checkpoint,
        origin: Origin,
        choice: Choice,
        target: Target,
        routing: Routing,
        at_a_time: int,
    ) -> Work:
        rates = Rates(self.sending.rate, self.sending.bytes_rate).shared(at_a_time)
        return Forwarding(
            origin=origin, choice=choice, target=target, routing=routing, job=held.id, drop=self.drop,
            provenance=self.provenance, rates=rates, fail_on_data_loss=self.source.fail_on_data_loss,
            timeout_s=self.running.timeout_s,
        )  # fmt: skip

    def _verify(
        self, held: Checkpoint, origin: Origin, choice: Choice, target: Target, report: Report
    ) -> None:
        marks = Marks(held.folder / "verified")
        shutil.rmtree(marks.folder, ignore_errors=True)
        with writing(marks.folder):
            marks.folder.mkdir()
        work = Verifying(
            origin=origin, choice=choice, target=BrokerOrigin(target, timeout_s=self.running.timeout_s),
            forwarded=held.marks, job=held.id, provenance=self.provenance, routing=self.leaving,
        )  # fmt: skip
        report.failures = self._run(held, marks, lambda _: work, whole_queues=False)
        report.verification = verifying.told(
            marks.written(), "source offset" if self.provenance else "unique key"
        )

    def _run(
        self,
        held: Checkpoint,
        marks: Marks,
        work: Callable[[int], Work],
        *,
        whole_queues: bool,
        abreast: int = 1,
    ) -> list[str]:
        """Everything that the marks do not have yet."""
        spark = lane.context(self.job)
        left = held.unfinished(marks)
        tasks = lane.tasks_of(left, spark.defaultParallelism, whole_queues=whole_queues, abreast=abreast)
        at_a_time = max(1, min(len(tasks), spark.defaultParallelism))
        with shown(self.job, marks, held.slices, quiet=self.running.quiet):
            return lane.run(spark, tasks, marks, work(at_a_time))


def queues_at(
    sender: Sender, sending: TargetArguments, sources: Sequence[MessageQueue]
) -> tuple[dict[str, list[MessageQueue]], list[str]]:
    """The queues of each target topic, made with as many as the source has if that is wanted; and what was made."""
    renamed = sending.renamed()
    wanted: dict[str, int] = {}
    for queue in sources:
        topic = renamed(queue.topic)
        wanted[topic] = max(wanted.get(topic, 0), queue.queue_id + 1)
    found, made = {}, []
    for topic, count in sorted(wanted.items()):
        try:
            found[topic] = writable(sender, topic)
        except TopicMissing as missing:
            if not sending.create_topics:
                raise TopicMissing(f"{missing}; --create-topics makes it") from None
            with blocking.Admin(client=sending.cluster().options()) as admin:
                names = admin.create_topic(topic, count)
            made.append(f"topic {topic} was made with {count} queues at {', '.join(names)}")
            found[topic] = writable(sender, topic)
    return found, made
