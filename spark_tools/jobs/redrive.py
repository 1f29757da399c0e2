"""redrive: sends dead letters of consumer groups back to the topics they came from. A program for
spark-submit.

They start again: the retry count is 0, and properties of retries and dead letters are dropped. A letter
without a known topic is named in the report and not sent. The dead letter topic itself is only read.
"""

from dataclasses import dataclass, replace

from firearrow._native.base.verbs import argument
from firearrow._native.protocol.name_rules import BROKER_OWN, RETRIED, dlq_topic
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.jobs.arguments import (
    RunArguments,
    SendingArguments,
    SourceArguments,
    TargetArguments,
)
from firearrow.spark_tools.jobs.dead_letters import DeadLetterRouting
from firearrow.spark_tools.jobs.program import Program, finish, job_fingerprint
from firearrow.spark_tools.jobs.send_job import SendJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveArguments(SendingArguments):
    groups: list[str] | None = argument(
        "--group", None, "consumer group whose dead letters are sent; can be repeated", action="append"
    )


def redrive(
    source: SourceArguments, sending: TargetArguments, running: RunArguments, own: RedriveArguments
) -> int:
    """Send dead letters of consumer groups to the topics they came from. The same command resumes an interrupted job.

    firearrow spark redrive --path ~/firearrow/store --group billing --target 127.0.0.1:9876
    firearrow spark redrive --namesrv a:9876 --group billing --target a:9876 --dry-run
    """
    if not own.groups:
        raise InvalidOption("--group: name the consumer group whose dead letters are meant")
    if source.topics or source.pattern is not None or source.offsets is not None:
        raise InvalidOption("--group decides what is read: give it without --topic, --pattern and --offsets")
    letters = replace(source, topics=[dlq_topic(group) for group in own.groups])
    routing = DeadLetterRouting(
        sending.topic_table()
    )  # letters have their topics, so workers look up the queues
    delivery = SendJob(
        job="redrive",
        source=letters,
        sending=sending,
        running=running,
        fingerprint=job_fingerprint(letters, sending, provenance=own.provenance),
        routed=lambda sender, parts: (routing, []),
        drop=BROKER_OWN | RETRIED,
        provenance=own.provenance,
        dry_run=own.dry_run,
        verify=own.verify,
        leaving=routing,
    )
    return finish(delivery.carry_out(), running)


cli = Program("redrive", redrive, (SourceArguments, TargetArguments, RunArguments, RedriveArguments))

if __name__ == "__main__":
    cli.main()
