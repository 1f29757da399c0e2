"""The arguments of `firearrow broker` and `firearrow namesrv`, each declared once: name, default, help, type.

It imports little, because help, errors and `--version` should appear at once.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

WRONG_USAGE = 2
LEVELS, FORMATS = ("debug", "info", "warning", "error"), ("text", "json")
LOG_FILE_SIZE, LOG_FILES = "64M", 5
LOG_FILES_MAX = 1000
COLUMNS, COLUMNS_MIN = 100, 60
"""Width of help that does not go to a terminal, and on the narrowest one."""


class ServerArguments(argparse.Namespace):
    """Those of every server. `config`: its configuration file."""

    listen: str | None
    config: Path | None
    log_level: str
    log_format: str
    log_file: str | None
    log_file_size: str | None
    log_files: int | None


class BrokerArguments(ServerArguments):
    store: Path | None
    advertise: str | None
    namesrv_listen: str
    namesrv: str | None
    set: list[str]
    check_config: Path | None


class Parser(argparse.ArgumentParser):
    """A parser with `--version`, help as wide as the terminal, and errors of one line."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name, description=summary, formatter_class=_formatter, allow_abbrev=False)
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
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith("firearrow-") and name.endswith(".dist-info"):
                return name.removeprefix("firearrow-").removesuffix(".dist-info")
    from importlib import metadata  # noqa: PLC0415 (slow, rarely used)

    return metadata.version("firearrow")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """With its width: argparse imports shutil to find that out, even if no help is printed."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = COLUMNS
    return argparse.HelpFormatter(prog, max_help_position=30, width=max(columns, COLUMNS_MIN) - 2)


def broker_parser() -> Parser:
    parser = Parser(
        "firearrow broker",
        "Run the broker and a name server in one process. OPTIONS.md explains the keys of --config and --set.",
    )
    option = parser.add_argument
    option("--store", type=Path, metavar="DIR", help="the store's folder  [default: ~/firearrow/store]")
    option("--listen", metavar="HOST:PORT", help="where the broker listens  [default: 127.0.0.1:10911]")
    option(
        "--advertise",
        metavar="HOST:PORT",
        help="how clients reach the broker, where ports are mapped to other ports",
    )
    option(
        "--namesrv-listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9876",
        help="where the name server in this process listens, or off  [default: %(default)s]",
    )
    option("--namesrv", metavar="ADDR;ADDR", help="other name servers to register with")
    option("--config", type=Path, metavar="FILE", help="a configuration file such as Apache's broker.conf")
    option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration file, overriding the file; may be repeated",
    )
    option(
        "--check-config",
        type=Path,
        metavar="FILE",
        help="start nothing: print the options of a start with this file, and everything that is wrong with them",
    )
    _add_log_options(parser)
    return parser


def namesrv_parser() -> Parser:
    parser = Parser(
        "firearrow namesrv", "Run the name server alone. OPTIONS.md explains the keys of --config."
    )
    option = parser.add_argument
    option("--listen", metavar="HOST:PORT", help="where it listens  [default: 127.0.0.1:9876]")
    option("--config", type=Path, metavar="FILE", help="a configuration file such as Apache's namesrv.conf")
    _add_log_options(parser)
    return parser


def _add_log_options(parser: Parser) -> None:
    option = parser.add_argument
    option(
        "--log-level",
        type=str.lower,
        choices=LEVELS,
        default="warning",
        help="what is logged  [default: %(default)s]",
    )
    option("--log-format", choices=FORMATS, default="text", help="lines of text, or of JSON objects")
    option("--log-file", metavar="PATH", help="log to this file instead of stderr; SIGHUP opens it again")
    option(
        "--log-file-size",
        metavar="SIZE",
        help=f"rotate the log file at this size, such as 500K or 1G  [default: {LOG_FILE_SIZE}]",
    )
    option(
        "--log-files",
        type=_file_count,
        metavar="N",
        help=f"log files to keep: PATH, PATH.1, PATH.2 …  [default: {LOG_FILES}]",
    )


def _file_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= LOG_FILES_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {LOG_FILES_MAX}, not {text!r}")
    return int(text)
