"""Command and Call: the verbs of a command, what all of them have in common, and what a verb gets when it runs.

A module of the command line has one `Command`, adds its verbs, and runs it:

    command = Command("topic", __doc__)
    command.verb("show", show, "a topic's queues", example="firearrow topic show orders").argument("topic")
    return command.run(arguments)

A verb is a coroutine function that gets the `Call` and returns the exit code (None: 0). Loop thread.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from firearrow._native.base.command_line import WRONG_USAGE, Parser
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import (
    ConfigError,
    MessageRefused,
    NoNameServer,
    OnlyFireArrow,
    RocketMQError,
    TransportError,
)
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.service_state import Startable
from firearrow.client.cli.contexts import Context, chosen_context
from firearrow.client.cli.main import INTERRUPTED
from firearrow.client.cli.output import Output, printable

Entered = TypeVar("Entered", bound=Startable)
OK, FOUND_TROUBLE, CANNOT_REACH = 0, 1, 3
TIMEOUT_S = 6.0
NUMBER_MAX, NUMBER_CHARS = 1 << 53, 15
COMPLETE = "--complete"
"""Instead of a verb's arguments: the words of a line whose last one is to be completed."""


def positive(text: str) -> float:
    """For arguments in seconds, or rates. ArgumentTypeError: not a number over 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= NUMBER_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number over 0")
    return number


def count(text: str) -> int:
    """For arguments that count something. ArgumentTypeError: not an integer from 1 on."""
    if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_CHARS and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer over 0")
    return int(text)


class Call:
    """A verb's arguments, output and connection. `arguments` has a member for each argument of the verb."""

    def __init__(self, arguments: argparse.Namespace, context: Context, output: Output) -> None:
        self.arguments: Any = arguments
        self.output = output
        self.options: ClientOptions = context.client_options()
        self._context = context
        self._open = AsyncExitStack()
        self._admin: Admin | None = None

    async def admin(self) -> Admin:
        """Connected on first use, and closed after the verb."""
        if self._admin is None:
            self._admin = await self.enter(Admin(client=self.options, timeout_s=self.arguments.timeout))
        return self._admin

    async def enter(self, made: Entered) -> Entered:
        """Start a producer or consumer; it is closed after the verb."""
        started = await made.start()
        self._open.push_async_callback(started.close)
        return started

    async def close(self) -> None:
        await self._open.aclose()

    def may(self, what: str) -> bool:
        """Whether a verb that moves or deletes something may do it; `what` it does: such as `delete topic orders`.

        False after `--dry-run` or a "no": the verb has nothing more to do. ConfigError: there is no terminal to ask at.
        """
        if self.arguments.dry_run:
            self.output.note(f"would {what}")
            return False
        if self.arguments.yes:
            return True
        if not sys.stdin.isatty():
            raise ConfigError(f"this would {what}: add --yes to do it, or --dry-run to see what it does")
        print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


Action = Callable[[Call], Awaitable[int | None]]


class Verb:
    """The arguments of one verb; methods return the verb, so that they can be chained.

    Its parser is made when it is needed: those of all verbs of a command take longer than a verb runs.
    """

    def __init__(self, prog: str, action: Action, summary: str, example: str) -> None:
        self.prog = prog
        self.summary = summary
        self._action = action
        self._example = example
        self._arguments: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    def argument(self, *names: str, **settings: Any) -> Self:  # noqa: ANN401 (argparse's own types)
        """As `argparse.ArgumentParser.add_argument`."""
        self._arguments.append((names, settings))
        return self

    def moving(self) -> Self:
        """The verb moves or deletes something: `--dry-run` and `--yes`. See `Call.may`."""
        self.argument("--dry-run", action="store_true", help="only print what would be done")
        return self.argument("-y", "--yes", action="store_true", help="do not ask")

    def parser(self) -> Parser:
        parser = Parser(self.prog, self.summary)
        self._fill(parser)
        return parser

    def add_to(self, verbs: "argparse._SubParsersAction[_VerbParser]", name: str) -> None:
        parser = verbs.add_parser(name, help=self.summary, description=self.summary)
        self._fill(parser)

    def _fill(self, parser: Parser) -> None:
        parser.epilog = f"example: {self._example}"
        parser.set_defaults(action=self._action, prog=self.prog)
        common = parser.add_argument_group("connection and output")
        common.add_argument("-n", "--namesrv", metavar="ADDR;ADDR", help="name servers")
        common.add_argument("--context", metavar="NAME", help="name servers and keys of `firearrow context`")
        common.add_argument(
            "--timeout", type=positive, default=TIMEOUT_S, metavar="S", help=argparse.SUPPRESS
        )
        common.add_argument("--json", action="store_true", help="JSON Lines, as if the output were piped")
        for names, settings in self._arguments:
            parser.add_argument(*names, **settings)


class Command:
    """`name`: the command's words after `firearrow`. `docstring`: its first line is the summary."""

    def __init__(self, name: str, docstring: str | None) -> None:
        self._prog = f"firearrow {name}"
        self._summary = (docstring or "").partition("\n")[0]
        self._verbs: dict[str, Verb] = {}
        self._only: Verb | None = None

    def verb(self, name: str, action: Action, summary: str, *, example: str) -> Verb:
        """A verb of its own: `firearrow topic list`."""
        verb = self._verbs[name] = Verb(f"{self._prog} {name}", action, summary, example)
        return verb

    def only(self, action: Action, *, example: str) -> Verb:
        """The command is a verb itself: `firearrow send`."""
        self._only = Verb(self._prog, action, self._summary, example)
        return self._only

    def parser(self) -> Parser:
        """With all verbs."""
        if self._only is not None:
            return self._only.parser()
        parser = Parser(self._prog, self._summary)
        verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=_VerbParser)
        for name, verb in self._verbs.items():
            verb.add_to(verbs, name)
        return parser

    def _parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        verb = self._verbs.get(arguments[0]) if arguments else None
        if verb is None:
            return self.parser().parse_args(arguments)
        return verb.parser().parse_args(arguments[1:])

    def run(self, arguments: Sequence[str]) -> int:
        """Run the verb that the arguments name; the exit code. SystemExit: help, version or wrong use."""
        if list(arguments[:1]) == [COMPLETE]:
            from firearrow.client.cli.candidates import print_candidates  # noqa: PLC0415 (only for a shell)

            return print_candidates(self.parser(), arguments[1:])
        given = self._parse(arguments)
        try:
            context = chosen_context(given.context, given.namesrv)
            call = Call(given, context, Output(json=given.json))
            return asyncio.run(_run(given.action, call)) or OK
        except (ConfigError, MessageRefused, OnlyFireArrow) as error:
            return _failed(given.prog, error, WRONG_USAGE)
        except (NoNameServer, TransportError) as error:
            return _failed(given.prog, error, CANNOT_REACH)
        except RocketMQError as error:
            return _failed(given.prog, error, FOUND_TROUBLE)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # such as `| head`
            _discard_output()
            return OK
        except OSError as error:  # a full disk: those of connections and files are caught where they occur
            _discard_output()
            file = "the output" if error.filename is None else error.filename
            return _failed(given.prog, f"cannot use {file}: {error.strerror or error}", FOUND_TROUBLE)


def _failed(prog: str, error: Exception | str, code: int) -> int:
    print(f"{prog}: {printable(str(error))}", file=sys.stderr)
    return code


def _discard_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _VerbParser(Parser):
    """A verb's parser: argparse passes other arguments than `Parser` has."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(prog, description)


async def _run(action: Action, call: Call) -> int | None:
    try:
        return await action(call)
    finally:
        await call.close()
        call.output.close()
