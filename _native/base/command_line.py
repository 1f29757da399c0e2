"""The parser of every command: help, `--version` and errors of one line. Broker, client and Spark tools share it.

It imports little, because help, errors and `--version` should appear at once.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable
from typing import NoReturn

WRONG_USAGE = 2
COLUMNS, COLUMNS_MIN = 100, 60
"""Width of help that does not go to a terminal, and on the narrowest one."""


class Parser(argparse.ArgumentParser):
    """A parser with `--version`, help as wide as the terminal, and errors of one line."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(
            name,
            description=summary,
            formatter_class=_formatter,
            allow_abbrev=False,
            conflict_handler="resolve",  # a verb's own option wins over a common one: -n of `firearrow tail`
        )
        self._negative_number_matcher = re.compile(r"-\d")  # a time such as -15m is a value as well
        self.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} ({self.prog} --help lists the arguments)\n")


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


def _formatter(prog: str) -> argparse.HelpFormatter:
    """With its width: argparse imports shutil to find that out, even if no help is printed."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = COLUMNS
    return argparse.HelpFormatter(prog, max_help_position=30, width=max(columns, COLUMNS_MIN) - 2)
