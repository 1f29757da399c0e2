"""The command line of `firearrow store`.

Exit codes: 0 clean or done, 1 findings, 2 wrong usage, 3 the store cannot be used, 130 interrupted.
`broker/cli.py` imports this module only for `firearrow store`.
"""

import functools
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer

from firearrow._native.store.files.errors import StoreError
from firearrow.broker.base.config import apply, read
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.maintenance import backup, dump, repair, report, stat, verify
from firearrow.broker.maintenance.dump import RecordQuery, records
from firearrow.broker.maintenance.lock import check_folder, held
from firearrow.broker.replication.pair_identity import ASYNC_MASTER, SYNC_MASTER
from firearrow.broker.replication.role import promote_stopped, rebuild_stopped, reset_epoch

FINDINGS, WRONG_USAGE, CANNOT, INTERRUPTED = 1, 2, 3, 130

cli = typer.Typer(
    name="firearrow store",
    help="Check, repair, print or copy a store's folder.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
Folder = Annotated[Path, typer.Argument(help="The store's folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]
Live = Annotated[
    bool, typer.Option("--live", help="A broker may be running: check up to the current end of the log.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=0, max=256, help="Number of processes; 0: one per core.")]
IndexSlots = Annotated[
    int,
    typer.Option(
        "--index-slots", min=0, max=1 << 30, help="Slots of index files (maxHashSlotNum); 0: detect."
    ),
]


ConfFile = Annotated[
    Path | None, typer.Option("--config", help="The broker.conf, if it sets messageDelayLevel.")
]
P = ParamSpec("P")


class MasterRole(StrEnum):
    ASYNC_MASTER = ASYNC_MASTER
    SYNC_MASTER = SYNC_MASTER


def exits_with_message(command: Callable[P, None]) -> Callable[P, None]:
    """Decorator: an error ends the tool with one sentence on stderr and its exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (StoreError, StartError) as error:
            refuse(str(error), CANNOT)
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            refuse(f"{error.filename or 'the store'}: {error.strerror or error}", CANNOT)
        except KeyboardInterrupt:
            refuse("interrupted", INTERRUPTED)

    return run


def confirm(question: str, *, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        refuse("there is no terminal to confirm at: use --yes", WRONG_USAGE)
    if not yes and not typer.confirm(question, err=True):
        refuse("nothing was changed", FINDINGS)


def refuse(text: str, code: int) -> NoReturn:
    print(f"firearrow store: {text}", file=sys.stderr)
    raise typer.Exit(code)


@cli.callback()
def store() -> None:
    """Check, repair, print or copy a store's folder."""


@cli.command("verify")
@exits_with_message
def verify_store(
    folder: Folder,
    live: Live = False,
    json: Json = False,
    quiet: Quiet = False,
    jobs: Jobs = 0,
    crc: Annotated[bool, typer.Option("--crc/--no-crc", help="Check the CRC of bodies.")] = True,
    index: Annotated[bool, typer.Option("--index/--no-index", help="Check index files and keys.")] = True,
    config: ConfFile = None,
    index_slots: IndexSlots = 0,
) -> None:
    """Check every record, queue entry, index slot and small file; change nothing."""
    with held(str(folder), live=live):
        checks = _checks(config, crc=crc, index=index, index_slots=index_slots, jobs=jobs, quiet=quiet)
        verified = verify.verify(str(folder), checks)
    if json:
        report.print_json(report.as_object(verified))
    else:
        report.show(verified)
    if not verified.clean:
        raise typer.Exit(FINDINGS)


@cli.command("repair")
@exits_with_message
def repair_store(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the steps and change nothing.")] = False,
    cut_log_at: Annotated[
        int | None,
        typer.Option("--cut-log-at", min=0, help="Truncate the log at this physical offset."),
    ] = None,
    drop_damaged: Annotated[
        bool,
        typer.Option("--drop-damaged", help="Replace unreadable parts inside the log by filler records."),
    ] = False,
    reset_offsets: Annotated[
        bool, typer.Option("--reset-offsets", help="Move offsets beyond the end of a queue to its end.")
    ] = False,
    config: ConfFile = None,
    json: Json = False,
    quiet: Quiet = False,
    jobs: Jobs = 0,
    index_slots: IndexSlots = 0,
) -> None:
    """Repair a stopped store after a verify; originals of changed files are kept in removed-TIME."""
    root, delays_ms = str(folder), _delays_ms(config)
    with held(root, write=True):
        checks = _checks(config, jobs=jobs, quiet=quiet, index_slots=index_slots)
        work = repair.Repair(
            root,
            verify.verify(root, checks),
            repair.RepairOptions(cut_log_at, drop_damaged, reset_offsets, delays_ms, index_slots),
        )
        plan = work.plan()
        if not json:
            print(
                "\n".join(
                    [f"{step.text}" for step in plan.steps]
                    + [f"not repaired: {text}" for text in plan.not_repaired]
                )
            )
        if plan.steps and not dry_run:
            confirm(f"Run these {len(plan.steps)} steps on {root}?", yes=yes)
            work.run(plan, lambda _: None)
    after = verify.verify(root, checks)
    if json:
        steps = [step.text for step in plan.steps]
        report.print_json(
            {
                "steps": steps,
                "left": plan.not_repaired,
                "done": not dry_run,
                "kept": work.quarantine.kept,
                "removed": str(work.quarantine.folder) if work.quarantine.kept else None,
                "after": report.as_object(after),
            }
        )
    else:
        if work.quarantine.kept:
            print(f"originals: {work.quarantine.folder}")
        report.show(after)
    if not after.clean:
        raise typer.Exit(FINDINGS)


@cli.command("backup")
@exits_with_message
def backup_store(
    folder: Folder,
    target: Annotated[Path, typer.Argument(help="A new folder, or the previous backup, which is replaced.")],
    beside: Annotated[
        Path | None, typer.Option("--beside", help="A previous backup: share its full log files.")
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy all files instead of linking to the store's.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--verify", help="Verify the copy before it replaces the target.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    jobs: Jobs = 0,
) -> None:
    """Copy a store, also of a running broker. To restore it, copy the backup."""
    options = backup.BackupOptions(beside, not copy, check, jobs, quiet)
    made, verified = backup.backup(str(folder), target, options)
    if json:
        found = report.as_object(verified) if verified is not None else None
        manifest = {name: getattr(made, name) for name in backup.REPORTED_FIELDS}
        report.print_json({"target": str(target), **manifest, "verified": found})
    else:
        print(
            f"{target}: log {made.log_start} to {made.log_end}; {made.linked / 1e6:.1f} MB linked, "
            f"{made.kept / 1e6:.1f} MB kept, {made.copied / 1e6:.1f} MB copied"
        )
        if verified is not None:
            report.show(verified)
    if verified is not None and not verified.clean:
        refuse(
            f"the copy has findings and stays in {target}{backup.UNFINISHED}; {target} is not changed",
            FINDINGS,
        )


@cli.command("promote")
@exits_with_message
def promote_store(
    folder: Folder,
    role: Annotated[
        MasterRole | None,
        typer.Option("--role", help="What it becomes; without it, what its old master was."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also if it was fenced.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Make the stopped store of a slave the master's of its pair."""
    root = str(folder)
    with held(root, write=True):
        confirm(f"Make {root} the store of the master?", yes=yes)
        promoted = promote_stopped(root, role or "", force=force)
    print(
        f"{root} is a master's store now, of epoch {promoted.epoch}. Start it: firearrow broker --store {root}, with "
        f"its options; set brokerRole={promoted.master_role} and brokerId=0 in its configuration. Start its old master "
        "as a slave only"
    )


@cli.command("reset-epoch")
@exits_with_message
def reset_epoch_of_store(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let a stopped store forget that it was fenced, and epochs that no promotion can have had."""
    root = str(folder)
    with held(root, write=True):
        confirm(f"Let {root} have the role of its configuration again, whatever fenced it?", yes=yes)
        reset = reset_epoch(root)
    print(
        f"{root} is of epoch {reset.after} now, it was {reset.before}"
        + (
            ", and is fenced no more: start it only if no other master of its brokerName runs"
            if reset.was_fenced
            else ""
        )
    )


@cli.command("rebuild")
@exits_with_message
def rebuild_store(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let a stopped slave begin again with an empty log; the old one is kept below `damaged`."""
    root = str(folder)
    with held(root, write=True):
        confirm(f"Set the log of {root} aside?", yes=yes)
        kept = rebuild_stopped(root)
    print(f"{root} copies the whole log from its master at its next start; {kept.text}")


@cli.command("stat")
@exits_with_message
def stat_store(folder: Folder, json: Json = False, quiet: Quiet = False, jobs: Jobs = 0) -> None:
    """Sizes, messages by topic and queue, times, groups with their lag, waste; also of a running broker."""
    check_folder(str(folder))
    statistics = stat.stat(str(folder), jobs=jobs, quiet=quiet)
    if json:
        report.print_json(statistics)
    else:
        print("\n".join(map(dump.printable, stat.lines(statistics))))


@cli.command("dump")
@exits_with_message
def dump_store(
    folder: Folder,
    topic: Annotated[str | None, typer.Option("--topic", help="Only of this topic.")] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", min=0, max=65535, help="Only of this queue.")
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from-offset", min=0, help="Queue offset with --topic and --queue, else physical offset."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only with this key or unique key.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Stored at this time or later: ISO 8601, or ms.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Stored before this time: ISO 8601, or ms.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Print at most this many; 0: all.")] = 0,
    body: Annotated[
        dump.BodyFormat, typer.Option("--body", help="How bodies are shown.")
    ] = dump.BodyFormat.TEXT,
    body_folder: Annotated[
        Path | None, typer.Option("--body-folder", help="Where --body file writes.")
    ] = None,
    entries: Annotated[
        bool, typer.Option("--queue-entries", help="Print the entries of --topic and --queue.")
    ] = False,
    index: Annotated[bool, typer.Option("--index", help="Print the headers of the index files.")] = False,
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="Print the checkpoint.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
    index_slots: IndexSlots = 0,
) -> None:
    """Print records, queue entries, index headers or the checkpoint; also of a running broker."""
    root = str(folder)
    check_folder(root)
    if sum((entries, index, checkpoint)) > 1:
        raise typer.BadParameter("use only one of --queue-entries, --index, --checkpoint")
    if entries:
        if topic is None or queue is None:
            raise typer.BadParameter("--queue-entries needs --topic and --queue")
        dump.print_rows(dump.entry_rows(root, topic, queue, from_offset), json=json, limit=limit)
    elif index:
        dump.print_rows(dump.index_rows(root, index_slots), json=json, limit=limit)
    elif checkpoint:
        dump.print_rows(iter((dump.checkpoint_row(root),)), json=json)
    else:
        if (body is dump.BodyFormat.FILE) != (body_folder is not None):
            raise typer.BadParameter("--body file and --body-folder FOLDER must be used together")
        if body_folder is not None:
            body_folder.mkdir(parents=True, exist_ok=True)
        query = RecordQuery(
            topic, queue, from_offset, key, _time_ms(since, "--since"), _time_ms(until, "--until"), limit
        )
        rows = dump.RecordPrinter(body, body_folder)
        found = records(root, query, lambda text: print(f"firearrow store: {text}", file=sys.stderr))
        dump.print_all(found, rows.row if json else None, rows.line)


def _time_ms(text: str | None, option: str) -> int | None:
    """Parse ISO 8601 (UTC without a zone) or ms."""
    if text is None or text.isdecimal():
        return None if text is None else int(text[:18])
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} must be a time such as 2026-11-21T05:13:00Z, or ms, not {text!r}"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _checks(config: Path | None, **more: Any) -> verify.VerifyOptions:  # noqa: ANN401 (fields of VerifyOptions)
    """Without the configuration file the delay levels are not known."""
    delays_ms = () if config is None else _delays_ms(config)
    return verify.VerifyOptions(delays_s=tuple(each // 1000 for each in delays_ms), **more)


def _delays_ms(config: Path | None) -> tuple[int, ...]:
    try:
        levels = read(config).get("messageDelayLevel") if config is not None else None
        options = apply(Options(), {} if levels is None else {"messageDelayLevel": levels})
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    return options.delay_levels_ms
