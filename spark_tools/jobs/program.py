"""Makes a job a program: Typer application, argument groups, one-sentence errors, exit codes.

0 done, 1 failed in part or whole, 2 wrong usage, 130 interrupted.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, NoReturn, get_type_hints

import typer
from rich.console import Console

from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption
from firearrow.spark_tools.base.submission import CHECKS, Passed
from firearrow.spark_tools.jobs.arguments import RunArguments, SourceArguments, TargetArguments, as_text
from firearrow.spark_tools.jobs.queue_mapping import writable
from firearrow.spark_tools.jobs.report import Report
from firearrow.spark_tools.live.sender import Sender
from firearrow.spark_tools.submit import CannotSubmit

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
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


def program() -> typer.Typer:
    """For one command."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False
    )


def expand_argument_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, with each argument group replaced by its fields, as Typer needs them.

    Errors become one sentence on stderr and an exit code.
    """
    hints = get_type_hints(command, include_extras=True)
    del hints["return"]
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}

    @wraps(command)
    def expanded(**given: object) -> None:
        values = {name: given[name] for name in hints if name not in groups}
        for name, kind in groups.items():
            values[name] = kind(**{field.name: given[field.name] for field in fields(kind)})
        checks = CHECKS.get()
        try:
            if checks is None:
                command(**values)
            else:
                _check(checks, values.values())
        except REFUSALS as error:
            refuse(error)
        except KeyboardInterrupt:
            print("firearrow: interrupted; run the same command again to resume", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None

    parameters = [parameter for kind in groups.values() for parameter in _parameters(kind)]
    own = inspect.signature(command).parameters
    parameters += [
        _parameter(name, kind, own[name].default) for name, kind in hints.items() if name not in groups
    ]
    del expanded.__wrapped__
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _check(checks: Callable[[], bool], groups: Iterable[object]) -> NoReturn:
    if checks():
        check_endpoints(groups)
    raise Passed


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


def refuse(error: Exception) -> NoReturn:
    print(f"firearrow: {error}", file=sys.stderr)
    raise typer.Exit(WRONG_USAGE if isinstance(error, InvalidOption | CannotSubmit) else FAILED)


def finish(report: Report) -> None:
    """Show it; the exit code is 1 if something failed."""
    report.show(Console())
    if report.failed:
        raise typer.Exit(FAILED)


def job_fingerprint(source: SourceArguments, *groups: object, **own: object) -> Mapping[str, Any]:
    """The arguments whose change makes it another job, as a report shows them. `groups`: dataclasses of arguments."""
    given = {name: value for group in (source, *groups) for name, value in as_text(group).items()}
    found: dict[str, Any] = {name: value for name, value in given.items() if name not in NOT_DIGESTED} | own
    if source.keys_file is not None:
        keys = "\n".join(sorted(source.message_filter().keys))
        found["keys_file_content"] = hashlib.sha256(keys.encode()).hexdigest()[:16]
    return found


def _parameters(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields(group)]


def _parameter(name: str, kind: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
