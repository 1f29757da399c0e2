"""redrive: sends dead letters of consumer groups back to the topics they came from. A program for
spark-submit.

They start again: the retry count is 0, and properties of retries and dead letters are dropped. A letter
without a known topic is named in the report and not sent. The dead letter topic itself is only read.
"""

from dataclasses import replace
from typing import Annotated

import typer

from firearrow._native.protocol.name_rules import BROKER_OWN, RETRIED, dlq_topic
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs.arguments import (
    KeepsProvenance,
    RunArguments,
    SourceArguments,
    TargetArguments,
    Verify,
)
from firearrow.spark_tools.jobs.dead_letters import DeadLetterRouting
from firearrow.spark_tools.jobs.program import expand_argument_groups, finish, job_fingerprint, program
from firearrow.spark_tools.jobs.send_job import SendJob

cli = program()
Option = typer.Option


@cli.command()
@expand_argument_groups
def redrive(
    source: SourceArguments,
    sending: TargetArguments,
    running: RunArguments,
    groups: Annotated[
        list[str] | None,
        Option("--group", help="Consumer group whose dead letters are meant; again for each."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Send nothing: count by group, tag and hour.")] = False,
    verify: Verify = False,
    provenance: KeepsProvenance = True,
) -> None:
    """Send dead letters of consumer groups back to the topics they came from."""
    if not groups:
        raise InvalidOption("--group: name the consumer group whose dead letters are meant")
    if source.topics or source.pattern is not None or source.offsets is not None:
        raise InvalidOption("--group decides what is read: give it without --topics, --pattern and --offsets")
    letters = replace(source, topics=[dlq_topic(group) for group in groups])
    routing = DeadLetterRouting(
        sending.topic_table()
    )  # letters have their topics, so workers look up the queues
    delivery = SendJob(
        job="redrive",
        source=letters,
        sending=sending,
        running=running,
        fingerprint=job_fingerprint(letters, sending, provenance=provenance),
        routed=lambda sender, parts: (routing, []),
        drop=BROKER_OWN | RETRIED,
        provenance=provenance,
        dry_run=dry_run,
        verify=verify,
        leaving=routing,
    )
    finish(delivery.carry_out())


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
