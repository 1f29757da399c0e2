"""Makes a job a program: its arguments, one-sentence errors, exit codes.

0 done, 1 failed in part or whole, 2 wrong usage, 130 interrupted.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console

from firearrow._native.base.verbs import Command, groups_of
from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments, as_text
from firearrow.spark_tools.jobs.queue_mapping import writable
from firearrow.spark_tools.jobs.report import Report
from firearrow.spark_tools.live.sender import Sender
from firearrow.spark_tools.submit import CannotSubmit

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
NOT_DIGESTED = frozenset(
    {
        "rate",
        "bytes_rate",
        "create_topics",
        "settings",
        "group",
        "target_settings",
        "check_crc",
        "fail_on_data_loss",
    }
)
"""Arguments that may change from one run to the next, and the job remains the same. After a loss ended a
job, its progress is before the loss, so that the next run finds it again and may count it."""


class Program:
    """A job as a command. `groups`: the dataclasses of its arguments, of which the job gets one object each."""

    def __init__(self, name: str, job: Callable[..., int], groups: Sequence[type]) -> None:
        self.command = Command(f"spark {name}", None)
        self._job = job
        verb = self.command.only(job)
        for group in groups:
            verb.group(group)

    def main(self) -> NoReturn:
        """What spark-submit runs."""
        sys.exit(self(sys.argv[1:]))

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run the job; its exit code. SystemExit: after help or a usage error was printed."""
        groups = self._parse(arguments)
        return _exit_code(lambda: self._job(*groups))

    def check(self, arguments: Sequence[str], checks: Callable[[], bool], submit: Callable[[], None]) -> int:
        """Submit the job if nothing is wrong; the exit code. `checks` examines this machine, and returns whether to
        check the job's source and target as well. SystemExit: after help or a usage error was printed."""
        groups = self._parse(arguments)

        def checked() -> int:
            if checks():
                check_endpoints(groups)
            submit()
            return OK

        return _exit_code(checked)

    def _parse(self, arguments: Sequence[str]) -> Sequence[object]:
        return groups_of(self.command.parse(arguments, any_value=True))


def _exit_code(work: Callable[[], int]) -> int:
    """Errors become one sentence on stderr and an exit code."""
    try:
        return work()
    except REFUSALS as error:
        print(f"firearrow: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, InvalidOption | CannotSubmit) else FAILED
    except KeyboardInterrupt:
        print("firearrow: interrupted; run the same command again to resume", file=sys.stderr)
        return INTERRUPTED


def check_endpoints(groups: Iterable[object]) -> None:
    """Open what the arguments of a job name, and close it. InvalidOption, and errors of the source or the
    target."""
    given = {type(group): group for group in groups}
    for group in given.values():
        if isinstance(group, SourceArguments | TargetArguments | RunArguments):
            group.check()
    running, source, sending = (given.get(kind) for kind in (RunArguments, SourceArguments, TargetArguments))
    timeout_s = running.timeout_s if isinstance(running, RunArguments) else RunArguments().timeout_s
    if isinstance(source, SourceArguments):
        with source.message_source(timeout_s).open() as reader:
            for topic in sorted(source.topic_names()):
                reader.queues(topic)
    if isinstance(sending, TargetArguments) and sending.target:
        with Sender(sending.cluster(), timeout_s=timeout_s) as sender:
            sender.check()
            for topic in sorted(set(sending.topic_table().values())) if not sending.create_topics else ():
                writable(sender, topic)


def finish(report: Report, running: RunArguments) -> int:
    """Write the report if a file is named, and show it; the exit code is 1 if something failed."""
    if running.report is not None:
        report.write(running.report)
    report.show(Console())
    return FAILED if report.failed else OK


def job_fingerprint(source: SourceArguments, *groups: object, **own: object) -> Mapping[str, Any]:
    """The arguments whose change makes it another job, as a report shows them. `groups`: dataclasses of arguments."""
    given = {name: value for group in (source, *groups) for name, value in as_text(group).items()}
    found: dict[str, Any] = {name: value for name, value in given.items() if name not in NOT_DIGESTED} | own
    if source.keys_file is not None:
        keys = "\n".join(sorted(source.message_filter().keys))
        found["keys_file_content"] = hashlib.sha256(keys.encode()).hexdigest()[:16]
    if any(text.startswith("@") for text in source.unique_ids or ()):
        ids = "\n".join(sorted(source.message_filter().unique_ids))
        found["ids_content"] = hashlib.sha256(ids.encode()).hexdigest()[:16]
    return found
