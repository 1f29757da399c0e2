"""Questions: the verbs of the command line, asked by the console, with what they print kept as values.

A verb gets a Call as on the command line, but its Output keeps rows, records and notes. So the console shows what the
command line shows, previews a change by `--dry-run`, and does it by `--yes`. Only verbs and options that are named
here can be asked: others read files or run commands of this machine. Loop thread.
"""

import argparse
import asyncio
import contextlib
import io
import shlex
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import GroupConfig
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.contexts import Context
from firearrow.client.cli.output import Colour, Column, Output

COMMANDS = {
    "clients": "groups",
    "config": "cluster",
    "dlq": "groups",
    "group": "groups",
    "jobs": "transfer",
    "log": "cluster",
    "message": "messages",
    "queue": "topics",
    "send": "messages",
    "status": "cluster",
    "timer": "messages",
    "top": "cluster",
    "topic": "topics",
    "tx": "messages",
    "user": "cluster",
}
"""Command → the package of its module, which is imported with the first question: the first page comes sooner."""
EDITED = "--body"
SHARED_S = 1.5
"""For how long whole lists of a cluster, which several questions of a page need, are shared."""
NO_FILES = ("--ids", EDITED)
"""Options whose values name a file if they start with @."""
VALUE_CHARS_MAX, BODY_CHARS_MAX = 4096, 1 << 20

T = TypeVar("T")
Value = str | int | bool | Sequence[str] | None


@dataclass(slots=True)
class Table:
    """What a verb printed as a table."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]


class Kept(Output):
    """Keeps what a verb prints. `code`: its exit code; `reached`: how far it has come, and of how much."""

    def __init__(self) -> None:
        self.terminal, self.json, self.has_colours = False, True, False
        self.tables: list[Table] = []
        self.records: list[Mapping[str, Any]] = []
        self.notes: list[str] = []
        self.code = 0
        self.reached = (0, 0)

    @property
    def table(self) -> Table:
        """The only one, or an empty one."""
        return self.tables[0] if self.tables else Table((), [])

    @property
    def first(self) -> Mapping[str, Any]:
        """The only one, or an empty one."""
        return self.records[0] if self.records else {}

    def rows(self, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
        self.tables.append(Table(columns, list(rows)))

    def record(self, values: Mapping[str, Any], columns: Sequence[Column] = ()) -> None:
        self.records.append(values)

    def json_line(self, values: Mapping[str, Any]) -> None:
        self.records.append(values)

    def done(self, sentence: str, values: Mapping[str, Any]) -> None:
        self.notes.append(sentence)

    def note(self, line: str) -> None:
        self.notes.append(line)

    def shown(self, line: str) -> None:
        self.notes.append(line)

    def text(self, line: str) -> None:
        if line:
            self.notes.append(line)

    def painted(self, text: str, colour: Colour | None) -> str:
        return text

    def progress(self, done: int, total: int) -> None:
        self.reached = (done, total)

    def flush(self) -> None:
        pass

    def redraw(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Question:
    """`firearrow COMMAND VERB` with these options and words. `body`: of a message, which is never read from a file.
    `secret`: a password, which no command line has."""

    command: str
    verb: str = ""
    options: Mapping[str, Value] = field(default_factory=dict)
    words: Sequence[str] = ()
    body: bytes | None = None
    secret: str | None = field(default=None, repr=False)

    def arguments(self) -> list[str]:
        """As they follow the command. ConfigError: a value is too long, or would name a file."""
        found = [self.verb] if self.verb else []
        for name, value in self.options.items():
            values = [value] if isinstance(value, str | int) or value is None else list(value)
            for each in values:
                if each is True:
                    found.append(name)
                elif each is not None and each is not False and each != "":
                    _check_value(name, str(each))
                    found.append(f"{name}={each}")
        for word in self.words:
            _check_value("the name", word)
            if word == "--":
                raise ConfigError("the name: it cannot be --, which ends the options of a command line")
        return [*found, "--", *self.words] if self.words else found

    def text(self) -> str:
        """The command line that does the same."""
        shown = [each for each in self.arguments() if each != "--"]
        return shlex.join(["firearrow", self.command, *shown, *(["BODY"] if self.body is not None else [])])


def _check_value(name: str, text: str) -> None:
    most = BODY_CHARS_MAX if name == EDITED else VALUE_CHARS_MAX
    if len(text) > most:
        raise ConfigError(f"{name}: at most {most:,} characters")
    if name in NO_FILES and text.lstrip().startswith("@"):
        raise ConfigError(f"{name}: it cannot start with @, which names a file of this machine")


def declared(command: str) -> Command:
    if command == "doctor":
        from firearrow.client.cli.doctor.command import Doctor  # noqa: PLC0415 (large)
        from firearrow.client.cli.doctor.command import declared as doctor_declared  # noqa: PLC0415

        return doctor_declared(Doctor())
    module = import_module(f"firearrow.client.cli.{COMMANDS[command]}.{command}")
    made: Command = module.declared()
    return made


def parsed(question: Question) -> argparse.Namespace:
    """The verb's arguments. ConfigError: its parser refuses them."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
            given = declared(question.command).parse(question.arguments())
    except SystemExit:
        text = errors.getvalue().strip().rpartition("; firearrow ")[0].partition(": ")[2]
        raise ConfigError(text or "these values cannot be used") from None
    if question.body is not None:
        given.body = question.body
    if question.secret is not None:
        given.secret = question.secret
    return given


async def ask(question: Question, context: Context, admin: Admin, kept: Kept | None = None) -> Kept:
    """What the verb prints, into `kept`. RocketMQError: as the verb raises it."""
    given, kept = parsed(question), Kept() if kept is None else kept
    call = Call(given, context, kept, admin)
    try:
        kept.code = await given.verb.action(call) or 0
    finally:
        await call.close()
    return kept


# ---- answers that pages share ----


class Shared:
    """Answers by what was asked; those who ask meanwhile wait for the same answer. They must not change an answer."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}

    async def once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer of less than SHARED_S ago, or a new one. Errors are not kept."""
        task = self._answers.get(key)
        if task is None:
            task = asyncio.create_task(ask())
            self._answers[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        answer: T = await asyncio.shield(task)
        return answer

    def _answered(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._drop(key, task)
        else:
            asyncio.get_running_loop().call_later(SHARED_S, self._drop, key, task)

    def _drop(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._answers.get(key) is task:
            del self._answers[key]

    def clear(self) -> None:
        """Something was changed."""
        self._answers.clear()


class PageAdmin(Admin):
    """An Admin whose list of groups is shared: each question about a group asks whether there is one."""

    @cached_property
    def shared(self) -> Shared:
        return Shared()

    async def groups(self) -> dict[str, GroupConfig]:
        return await self.shared.once("groups", super().groups)
