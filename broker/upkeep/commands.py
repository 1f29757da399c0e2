"""`firearrow store NAME …`: the tools by name. 0 clean or done, 1 findings, 2 wrong usage, 3 cannot, 130 interrupted.

Imported only when `store` is asked for; each tool only when it runs.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec

import typer

from firearrow._native.store.faults import StoreError
from firearrow.broker.upkeep import report, verify
from firearrow.broker.upkeep.lock import held

FINDINGS, CANNOT, INTERRUPTED = 1, 3, 130

cli = typer.Typer(
    name="firearrow store",
    help="Look at a store's folder, mend it, copy it.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Folder = Annotated[Path, typer.Argument(help="The store's folder.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Live = Annotated[
    bool, typer.Option("--live", help="A broker may be running on it: look up to the log's end of now.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=0, max=256, help="Processes; 0: one for each core.")]
IndexSlots = Annotated[
    int,
    typer.Option(
        "--index-slots", min=0, max=1 << 30, help="Of index files (maxHashSlotNum); 0: told from them."
    ),
]


P = ParamSpec("P")


def refusing(command: Callable[P, None]) -> Callable[P, None]:
    """What ends a tool is one sentence on stderr, and its code."""

    @functools.wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> None:
        try:
            command(*args, **given)
        except StoreError as error:
            refuse(str(error), CANNOT)
        except OSError as error:
            refuse(f"{error.filename or 'the store'}: {error.strerror or error}", CANNOT)
        except KeyboardInterrupt:
            refuse("interrupted", INTERRUPTED)

    return run


def refuse(text: str, code: int) -> NoReturn:
    print(f"firearrow store: {text}", file=sys.stderr)
    raise typer.Exit(code)


@cli.callback()
def store() -> None:
    """Tools for a store's folder."""


@cli.command("verify")
@refusing
def verify_store(
    folder: Folder,
    live: Live = False,
    json: Json = False,
    quiet: Quiet = False,
    jobs: Jobs = 0,
    crc: Annotated[bool, typer.Option("--crc/--no-crc", help="Check the CRC of bodies.")] = True,
    index: Annotated[bool, typer.Option("--index/--no-index", help="Check index files and keys.")] = True,
    index_slots: IndexSlots = 0,
) -> None:
    """Check every record, queue entry, index slot and small file; change nothing."""
    with held(str(folder), live=live):
        checks = verify.Checks(crc=crc, index=index, index_slots=index_slots, jobs=jobs, quiet=quiet)
        verified = verify.verify(str(folder), checks)
    if json:
        report.print_json(report.as_object(verified))
    else:
        report.show(verified)
    if not verified.clean:
        raise typer.Exit(FINDINGS)
