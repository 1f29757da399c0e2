"""Command and Call: commands that work on a cluster, and what their verbs get when they run.

A module of the command line has one `Command`, adds its verbs, and runs it:

    command = Command("topic", __doc__)
    command.verb("show", show).argument("topic")
    return command.run(arguments)

A verb is a coroutine function that gets the `Call` and returns the exit code (None: 0). Loop thread.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from firearrow._native.base import verbs
from firearrow._native.base.command_line import WRONG_USAGE
from firearrow._native.base.verbs import Declared, agrees
from firearrow._native.base.verbs import Verb as Verb  # noqa: PLC0414
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.requests import of_each as of_each  # noqa: PLC0414
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
from firearrow.client.cli.contexts import Context, chosen_context, load_contexts
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
    """A verb's arguments, output and connection. `arguments` has a member for each argument of the verb. `admin`: one
    that is connected already, and stays so."""

    def __init__(
        self, arguments: argparse.Namespace, context: Context, output: Output, admin: Admin | None = None
    ) -> None:
        self.arguments: Any = arguments
        self.output = output
        self.options: ClientOptions = context.client_options()
        self._context = context
        self._open = AsyncExitStack()
        self._admin = admin

    @property
    def context_name(self) -> str:
        """As the user named it: a context, or the name servers."""
        given = self.arguments
        if given.context is not None and given.namesrv is None:
            return str(given.context)
        contexts = load_contexts()
        is_current = contexts.by_name.get(contexts.current) == self._context
        return contexts.current if is_current else self._context.namesrv

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
        return agrees(f"{what}?")


Action = Callable[[Call], Awaitable[int | None]]
CONNECTION: tuple[Declared, ...] = (
    (("-n", "--namesrv"), {"metavar": "ADDR;ADDR", "help": "addresses of the name servers"}),
    (("--context",), {"metavar": "NAME", "help": "use the name servers and keys of this context"}),
    (
        ("--timeout",),
        {"type": positive, "default": TIMEOUT_S, "metavar": "S", "help": argparse.SUPPRESS},
    ),
    (("--json",), {"action": "store_true", "help": "print JSON Lines, as in a pipe"}),
)
"""Arguments of all verbs: connection and output."""

HELPS = {
    "topic": "name of the topic",
    "topics": "names of topics",
    "group": "name of the consumer group",
}
"""Of words that mean the same in all verbs."""


class Command(verbs.Command):
    """A command whose verbs work on a cluster. Their functions are coroutine functions, see `Action`."""

    def __init__(self, name: str, docstring: str | None) -> None:
        super().__init__(name, docstring, CONNECTION, HELPS)

    def run(self, arguments: Sequence[str]) -> int:
        """Run the verb that the arguments name; the exit code. SystemExit: help, version or wrong use."""
        if list(arguments[:1]) == [COMPLETE]:
            from firearrow.client.cli.candidates import print_candidates  # noqa: PLC0415 (only for a shell)

            return print_candidates(self.parser(), arguments[1:])
        given = self.parse(arguments)
        try:
            context = chosen_context(given.context, given.namesrv)
            call = Call(given, context, Output(json=given.json))
            return asyncio.run(_run(given.verb.action, call)) or OK
        except (ConfigError, MessageRefused, OnlyFireArrow) as error:
            return _failed(given.verb.prog, error, WRONG_USAGE)
        except (NoNameServer, TransportError) as error:
            return _failed(given.verb.prog, error, CANNOT_REACH)
        except RocketMQError as error:
            return _failed(given.verb.prog, error, FOUND_TROUBLE)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # ends the program quietly
            raise
        except OSError as error:  # a full disk: those of connections and files are caught where they occur
            _discard_output()
            file = "the output" if error.filename is None else error.filename
            return _failed(given.verb.prog, f"cannot use {file}: {error.strerror or error}", FOUND_TROUBLE)


def _failed(prog: str, error: Exception | str, code: int) -> int:
    print(f"{prog}: {printable(str(error))}", file=sys.stderr)
    return code


def _discard_output() -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _run(action: Action, call: Call) -> int | None:
    try:
        return await action(call)
    finally:
        await call.close()
        call.output.close()
