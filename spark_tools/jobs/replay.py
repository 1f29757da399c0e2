"""replay: sends messages of stores or of a live cluster again. A program for spark-submit.

Keeps the order of queues by default. If it is killed, the same command resumes. The source is only read.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.arguments import (
    KeepsProvenance,
    RunArguments,
    SourceArguments,
    TargetArguments,
    Verify,
)
from firearrow.spark_tools.jobs.program import expand_argument_groups, finish, job_fingerprint, program
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting, RoundRobinRouting, map_queues
from firearrow.spark_tools.jobs.send_job import Routed, SendJob, queues_at
from firearrow.spark_tools.live.sender import Sender

cli = program()
Option = typer.Option


@cli.command()
@expand_argument_groups
def replay(
    source: SourceArguments,
    sending: TargetArguments,
    running: RunArguments,
    unordered: Annotated[
        bool,
        Option("--unordered", help="Do not keep the order of queues: they are split over tasks and queues."),
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Send nothing: count by topic, tag and hour of storing.")
    ] = False,
    verify: Verify = False,
    verify_only: Annotated[
        bool, Option("--verify-only", help="Send nothing: compare what an earlier run of this command sent.")
    ] = False,
    provenance: KeepsProvenance = True,
) -> None:
    """Send messages of stores or of a live cluster again, to the same or another topic."""
    if dry_run and (verify or verify_only):
        raise InvalidOption("--dry-run sends nothing that --verify could find: give one of them")
    delivery = SendJob(
        job="replay",
        source=source,
        sending=sending,
        running=running,
        fingerprint=job_fingerprint(source, sending, unordered=unordered, provenance=provenance),
        routed=partial(routed, sending, unordered),
        drop=BROKER_OWN,
        provenance=provenance,
        dry_run=dry_run,
        verify=verify or verify_only,
        send=not verify_only,
    )
    finish(delivery.carry_out())


def routed(sending: TargetArguments, unordered: bool, sender: Sender, parts: Sequence[QueueRange]) -> Routed:
    """A target queue for each source queue, or all of its topic."""
    sources = sorted({part.queue for part in parts})
    targets, notes = queues_at(sender, sending, sources)
    renamed: Callable[[str], str] = sending.renamed()
    if unordered:
        return RoundRobinRouting({queue.topic: targets[renamed(queue.topic)] for queue in sources}), notes
    mapping = map_queues(sources, targets, renamed)
    return QueueRouting(mapping.table), [*notes, *(f"other queue id: {text}" for text in mapping.moved)]


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
