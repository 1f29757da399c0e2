"""`firearrow COMMAND …` runs the command of this name with the other arguments.

Commands are entry points of the group `firearrow.commands`, ours and those of other packages: functions that take the
arguments and return the exit code. Its module is imported when the command is called; the first line of the function's
docstring, or of the module's, is the command's help.

Exit codes: 0 ok, 1 found trouble, 2 wrong use, 3 cannot reach the servers, or cannot start, 130 ended by Ctrl-C.
"""

import gc
import os
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from firearrow._native.base.command_line import (
    HELP,
    WRONG_USAGE,
    Parser,
    how_to_install,
    metadata_folder,
    nearest,
)

CANNOT_START = 3
INTERRUPTED = 130
"""As a shell reports a command that Ctrl-C ended."""
GROUP = "firearrow.commands"
VERSION = "version"
BUILT_IN = {
    HELP: "Show the help of a command or verb: firearrow help topic create.",
    VERSION: "Print the version.",
}
"""Commands without an entry point."""
EXTRAS = {
    "console": ("console", ""),
    "export": ("delta", ", or iceberg, or paimon"),
    "spark": ("spark", " in an environment of its own"),
    "sql": ("sql", ""),
}
"""Commands that need the packages of an extra, and what is added to how it is installed."""


class EntryPoint(NamedTuple):
    """`module:function`"""

    module: str
    function: str

    @classmethod
    def of(cls, value: str) -> "EntryPoint":
        module, _, function = value.partition(":")
        return cls(module.strip(), function.strip())

    def load(self) -> Callable[[Sequence[str]], int]:
        command: Callable[[Sequence[str]], int] = getattr(import_module(self.module), self.function)
        return command


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, by default those of the process, and exit with its code."""
    try:
        try:
            code: str | int | None = run(sys.argv[1:] if arguments is None else arguments)
        except SystemExit as ended:  # after help, the version or a usage error
            code = ended.code
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:  # while modules are imported
        code = INTERRUPTED
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit code. SystemExit: after help, the version or a usage error was printed."""
    parser = Parser("firearrow", "A message broker for one machine that speaks Apache RocketMQ.")
    parser.usage = "firearrow [-h] [--version] COMMAND …"
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == [HELP]:
        print(f"{parser.format_help()}\n{_command_list()}", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else WRONG_USAGE
    if arguments[0] == HELP:
        arguments = [*arguments[1:], "--help"]
    elif arguments[0] == VERSION:
        arguments = ["--version"]
    name = parser.parse_args(arguments[:1], Namespace()).command
    entry = own_entries().get(name) or _all_entries().get(name)
    if entry is None:
        known = {**_all_entries(), **own_entries(), **BUILT_IN}
        parser.error(f"there is no command {name!r}{nearest(name, known)}")
    gc.disable()  # imports leave no garbage, and looking for it takes a tenth of their time
    try:
        command = entry.load()
    except ModuleNotFoundError as error:
        extra, more = EXTRAS.get(name, ("", ""))
        hint = f": {how_to_install(extra, error.name or '')}{more}" if extra else ""
        print(f"firearrow {name}: the Python package {error.name} is not installed{hint}", file=sys.stderr)
        return CANNOT_START
    finally:
        gc.enable()
    return int(command(arguments[1:]))


def own_entries() -> dict[str, EntryPoint]:
    """The commands of this package, from its metadata. `importlib.metadata` takes longer than most commands."""
    folder = metadata_folder(sys.path)
    if folder is None:
        return {}
    try:
        with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    return dict(_entries(lines))


def _entries(lines: Iterable[str]) -> Iterable[tuple[str, EntryPoint]]:
    group = ""
    for line in lines:
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == GROUP and "=" in line:
            name, _, value = line.partition("=")
            yield name.strip(), EntryPoint.of(value)


def _all_entries() -> dict[str, EntryPoint]:
    from importlib import metadata  # noqa: PLC0415 (slow)

    return {entry.name: EntryPoint.of(entry.value) for entry in metadata.entry_points(group=GROUP)}


def _command_list() -> str:
    """A line of help for each command, ours and those of other packages."""
    entries = (_all_entries() | own_entries()).items()
    lines = sorted([*BUILT_IN.items(), *((name, _summary(entry)) for name, entry in entries)])
    return "commands:\n" + "\n".join(f"  {name:<10} {line}" for name, line in lines)


def _summary(entry: EntryPoint) -> str:
    """The first line of the function's docstring, or else of its module's. The file is parsed, not imported: its
    imports can be slow."""
    import ast  # noqa: PLC0415 (only for help)

    path: Sequence[str] | None = None
    origin, name = None, ""
    for part in entry.module.split("."):
        name = f"{name}.{part}" if name else part
        spec = next(filter(None, (finder.find_spec(name, path) for finder in sys.meta_path)), None)
        if spec is None:
            return ""
        path, origin = spec.submodule_search_locations, spec.origin
    if origin is None or not os.path.exists(origin):
        return ""
    with open(origin, encoding="utf-8") as file:
        module = ast.parse(file.read())
    found = [
        ast.get_docstring(node)
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name == entry.function
    ]
    return next(filter(None, (*found, ast.get_docstring(module))), "").partition("\n")[0]
