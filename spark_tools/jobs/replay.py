"""replay: sends messages of stores or of a live cluster again. A program for spark-submit.

Keeps the order of queues by default. If it is killed, the same command resumes. The source is only read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from firearrow._native.base.verbs import argument
from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.arguments import (
    RunArguments,
    SendingArguments,
    SourceArguments,
    TargetArguments,
)
from firearrow.spark_tools.jobs.program import Program, finish, job_fingerprint
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting, RoundRobinRouting, map_queues
from firearrow.spark_tools.jobs.send_job import Routed, SendJob, queues_at
from firearrow.spark_tools.live.sender import Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArguments(SendingArguments):
    unordered: bool = argument(
        "--unordered", False, "do not keep the order of queues; split them over tasks and queues"
    )
    verify_only: bool = argument(
        "--verify-only", False, "send nothing; compare what an earlier run of this command sent"
    )


def replay(
    source: SourceArguments, sending: TargetArguments, running: RunArguments, own: ReplayArguments
) -> int:
    """Send messages of stores or of a live cluster again, to the same or to another topic. Queues keep their order,
    and the same command resumes an interrupted job.

        firearrow spark replay --path ~/firearrow/store --topic orders --target 127.0.0.1:9876
        firearrow spark replay --namesrv a:9876 --topic orders --from 2026-01-31T08:00 --target b:9876 --dry-run
    """
    if own.dry_run and (own.verify or own.verify_only):
        raise InvalidOption("--dry-run sends nothing that --verify could find: give one of them")
    delivery = SendJob(
        job="replay",
        source=source,
        sending=sending,
        running=running,
        fingerprint=job_fingerprint(source, sending, unordered=own.unordered, provenance=own.provenance),
        routed=partial(routed, sending, own.unordered),
        drop=BROKER_OWN,
        provenance=own.provenance,
        dry_run=own.dry_run,
        verify=own.verify or own.verify_only,
        send=not own.verify_only,
    )
    return finish(delivery.carry_out(), running)


def routed(sending: TargetArguments, unordered: bool, sender: Sender, parts: Sequence[QueueRange]) -> Routed:
    """A target queue for each source queue, or all of its topic."""
    sources = sorted({part.queue for part in parts})
    targets, notes = queues_at(sender, sending, sources)
    renamed: Callable[[str], str] = sending.renamed()
    if unordered:
        return RoundRobinRouting({queue.topic: targets[renamed(queue.topic)] for queue in sources}), notes
    mapping = map_queues(sources, targets, renamed)
    return QueueRouting(mapping.table), [*notes, *(f"other queue id: {text}" for text in mapping.moved)]


cli = Program("replay", replay, (SourceArguments, TargetArguments, RunArguments, ReplayArguments))

if __name__ == "__main__":
    cli.main()
