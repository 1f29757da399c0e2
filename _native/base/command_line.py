"""The parser of every command: help, `--version` and errors of one line. Broker, client and Spark tools share it.

It imports little, because help, errors and `--version` should appear at once.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar, cast

Given = TypeVar("Given", bound=argparse.Namespace)
WRONG_USAGE = 2
HELP = "help"
"""As a command, and as a verb of each command that has verbs."""
EXAMPLES = "examples:"
COLUMNS, COLUMNS_MIN = 100, 60
"""Width of help that does not go to a terminal, and on the narrowest one."""


class Parser(argparse.ArgumentParser):
    """A parser with `--version`, help as wide as the terminal, and errors of one line."""

    def __init__(self, name: str, summary: str, examples: Sequence[str] = ()) -> None:
        super().__init__(
            name,
            description=summary,
            epilog="\n".join((EXAMPLES, *examples)) if examples else None,
            formatter_class=_Formatter,
            allow_abbrev=False,
            conflict_handler="resolve",  # a verb's own option wins over a common one: -n of `firearrow tail`
        )
        self._negative_number_matcher = re.compile(r"-\d")  # a time such as -15m is a value as well
        self.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message}; {self.prog} --help shows the arguments\n")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Given | None = None
    ) -> Given:
        """The arguments, as attributes of `namespace`. SystemExit: wrong usage."""
        given, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return cast(Given, given)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one argument too many"
        option = word.partition("=")[0]
        near = nearest(option, (name for action in self._actions for name in action.option_strings))
        return f"there is no option {option}{near}"

    def _get_values(self, action: argparse.Action, texts: list[str]) -> Any:  # noqa: ANN401 (argparse's own type)
        if texts == ["--"] and action.nargs is None:  # argparse would take it away, and give an empty list
            value = self._get_value(action, texts[0])
            self._check_value(action, value)
            return value
        return super()._get_values(action, texts)

    def _get_value(self, action: argparse.Action, text: str) -> Any:  # noqa: ANN401 (argparse's own type)
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            kind = {int: "an integer", float: "a number"}.get(cast(type, action.type))
            if kind is None and action.choices is None:
                raise
            what = kind or f"one of {', '.join(map(str, action.choices or ()))}"
            raise argparse.ArgumentError(action, f"{text!r} is not {what}") from None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            names = list(map(str, action.choices))
            what = f"{value!r} is not one of {', '.join(names)}{nearest(str(value), names)}"
            raise argparse.ArgumentError(action, what)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"firearrow {version(sys.path)}")
        parser.exit()


def version(folders: Iterable[str]) -> str:
    """The version in pyproject.toml, from the name of the package's metadata in one of these folders. Only if none
    has it, `importlib.metadata` is used: its import takes longer than all the rest of `firearrow --version`."""
    folder = metadata_folder(folders)
    if folder is not None:
        return os.path.basename(folder).removeprefix("firearrow-").removesuffix(".dist-info")
    from importlib import metadata  # noqa: PLC0415 (slow, rarely used)

    return metadata.version("firearrow")


def metadata_folder(folders: Iterable[str]) -> str | None:
    """The path of FireArrow's metadata (`firearrow-1.2.3.dist-info`) in one of these folders."""
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith("firearrow-") and name.endswith(".dist-info"):
                return os.path.join(folder, name)
    return None


def how_to_install(extra: str, module: str) -> str:
    """What brings a module that a command needs. The console is a Debian package of its own."""
    if module.startswith("firearrow.client.console"):
        return "install the package firearrow-console"
    return f"pip install 'firearrow[{extra}]'"


def nearest(word: str, names: Iterable[str]) -> str:
    """`, but there is NAME`, if a name may have been meant: letters were swapped or left out, or the word begins so."""
    from difflib import get_close_matches  # noqa: PLC0415 (slow, rarely used)

    known = list(names)
    found = get_close_matches(word.lower(), known, 1) or [
        name for name in known if name.startswith(word.lower())
    ]
    return f", but there is {found[0]}" if found and word else ""


class _Formatter(argparse.HelpFormatter):
    """With its width: argparse imports shutil to find that out, even if no help is printed."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            columns = COLUMNS
        super().__init__(prog, max_help_position=30, width=max(columns, COLUMNS_MIN) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Each example has a line, however long it is."""
        if text.startswith(EXAMPLES):
            return text.replace("\n", f"\n{indent}  ")
        return super()._fill_text(text, width, indent)
