"""The command line: `firearrow COMMAND …` runs the command of this name with the other arguments.

Exit codes: 0 clean, 2 usage error, 3 cannot start. Packages add commands by entry points of the group
`firearrow.commands`: a function that takes the arguments and returns the exit code. Its module is imported
when the command is called; the first line of its docstring is the command's help.

A command imports what it needs itself: `--version`, help and errors should appear at once.
"""

import sys
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from firearrow.broker.base.arguments import (
    WRONG_USAGE,
    BrokerArguments,
    Parser,
    ServerArguments,
    broker_parser,
    namesrv_parser,
)
from firearrow.broker.base.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

CANNOT_START = 3
COMMANDS = "firearrow.commands"
Command = Callable[[Sequence[str]], int]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, by default those of the process, and exit with its code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code. SystemExit: after help, the version or a usage error was printed."""
    parser = Parser("firearrow", "A message broker for one machine that speaks Apache RocketMQ.")
    parser.usage = "firearrow [-h] [--version] COMMAND …"
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{parser.format_help()}\n{_command_list()}", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else WRONG_USAGE
    name = parser.parse_args(arguments[:1]).command
    if sys.platform != "linux":
        parser.exit(
            CANNOT_START, f"firearrow {name} needs Linux; on this system FireArrow is only a client\n"
        )
    command = OURS.get(name) or _plugin_command(name)
    if command is None:
        parser.error(f"there is no command {name!r}")
    return command(arguments[1:])


def broker(arguments: Sequence[str]) -> int:
    """Run the broker and a name server in one process."""
    parser = broker_parser()
    given = parser.parse_args(arguments, BrokerArguments())
    from firearrow.broker.app import commands  # noqa: PLC0415 (not needed for help)

    try:
        return commands.broker(given)
    except UsageError as error:
        parser.error(str(error))


def namesrv(arguments: Sequence[str]) -> int:
    """Run the name server alone."""
    parser = namesrv_parser()
    given = parser.parse_args(arguments, ServerArguments())
    from firearrow.broker.app import commands  # noqa: PLC0415 (not needed for help)

    try:
        return commands.namesrv(given)
    except UsageError as error:
        parser.error(str(error))


def store(arguments: Sequence[str]) -> int:
    """Check and repair a store, and more: verify, repair, dump, stat, backup."""
    from firearrow.broker.maintenance import commands  # noqa: PLC0415 (a broker does not need it)

    commands.cli(list(arguments), prog_name="firearrow store")
    return 0


OURS: dict[str, Command] = {"broker": broker, "namesrv": namesrv, "store": store}


def _command_list() -> str:
    """A line of help for each command, ours and those of packages."""
    lines = [(name, _first_line(command.__doc__)) for name, command in OURS.items()]
    lines += sorted((entry.name, _summary(entry.module)) for entry in _entry_points())
    return "commands:\n" + "\n".join(f"  {name:<10} {line}" for name, line in lines)


def _entry_points() -> "EntryPoints":
    from importlib import metadata  # noqa: PLC0415 (slow, and a broker does not need it)

    return metadata.entry_points(group=COMMANDS)


def _plugin_command(name: str) -> Command | None:
    """The command of the entry point with this name; None if there is none."""
    entry = next(iter(_entry_points().select(name=name)), None)
    if entry is None:
        return None

    def run(arguments: Sequence[str]) -> int:
        try:
            command = entry.load()
        except ModuleNotFoundError as error:
            print(
                f"firearrow {name}: the Python package {error.name} is not installed",
                file=sys.stderr,
            )
            return CANNOT_START
        return int(command(arguments))

    return run


def _summary(module: str) -> str:
    """The first line of the module's docstring. The file is parsed, not imported: its imports can be slow."""
    import ast  # noqa: PLC0415 (only for help)
    from pathlib import Path  # noqa: PLC0415

    path: Sequence[str] | None = None
    origin, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = next(filter(None, (finder.find_spec(name, path) for finder in sys.meta_path)), None)
        if spec is None:
            return ""
        path, origin = spec.submodule_search_locations, spec.origin
    return _first_line(ast.get_docstring(ast.parse(Path(origin).read_text("utf-8"))) if origin else None)


def _first_line(docstring: str | None) -> str:
    return (docstring or "").partition("\n")[0]
