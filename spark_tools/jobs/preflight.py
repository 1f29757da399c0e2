"""Preflight: what can be found wrong before a JVM starts: source folder or name server, topics, target."""

from collections.abc import Iterable

from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments
from firearrow.spark_tools.jobs.queue_mapping import writable
from firearrow.spark_tools.live.sender import Sender


def check_endpoints(groups: Iterable[object]) -> None:
    """Open what the arguments of a job name, and close it. InvalidOption, and errors of the source or the
    target."""
    given = {type(group): group for group in groups}
    running, source, sending = (given.get(kind) for kind in (RunArguments, SourceArguments, TargetArguments))
    timeout_s = running.timeout_s if isinstance(running, RunArguments) else RunArguments().timeout_s
    if isinstance(source, SourceArguments) and (source.path or source.name_server):
        with source.message_source(timeout_s).open() as reader:
            for topic in sorted(source.topic_names()):
                reader.queues(topic)
    if isinstance(sending, TargetArguments) and sending.target:
        with Sender(sending.cluster(), timeout_s=timeout_s) as sender:
            sender.check()
            for topic in sorted(set(sending.topic_table().values())) if not sending.create_topics else ():
                writable(sender, topic)
