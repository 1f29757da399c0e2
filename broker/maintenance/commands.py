"""The command line of `firearrow store`.

Exit codes: 0 clean or done, 1 findings, 2 wrong usage, 3 the store cannot be used, 130 interrupted.
`broker/cli.py` imports this module only for `firearrow store`.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence

from firearrow._native.base.command_line import WRONG_USAGE
from firearrow._native.base.verbs import Command, call
from firearrow._native.store.files.errors import StoreError
from firearrow.broker.base.errors import StartError, UsageError
from firearrow.broker.maintenance import backup, dump, repair, report, stat, verify
from firearrow.broker.maintenance.arguments import (
    BackupArguments,
    ConfirmedArguments,
    Declined,
    DumpArguments,
    PromoteArguments,
    RepairArguments,
    ReportArguments,
    VerifyArguments,
)
from firearrow.broker.maintenance.dump import records
from firearrow.broker.maintenance.lock import check_folder, held
from firearrow.broker.replication.failover.role import promote_stopped, rebuild_stopped, reset_epoch

OK, FINDINGS, CANNOT, INTERRUPTED = 0, 1, 3, 130


def main(arguments: Sequence[str]) -> int:
    """Check, repair, print or copy a store's folder."""
    command = Command("store", main.__doc__)
    verb = command.verb
    verb("verify", verify_store).group(VerifyArguments)
    verb("repair", repair_store).group(RepairArguments)
    verb("backup", backup_store).group(BackupArguments)
    verb("promote", promote_store).group(PromoteArguments)
    verb("reset-epoch", reset_epoch_of_store).group(ConfirmedArguments)
    verb("rebuild", rebuild_store).group(ConfirmedArguments)
    verb("stat", stat_store).group(ReportArguments)
    verb("dump", dump_store).group(DumpArguments)
    return _exit_code(command.parse(arguments, any_value=True))


def _exit_code(given: Namespace) -> int:
    """Run the verb; an error is one sentence on stderr."""
    try:
        return int(call(given) or 0)
    except UsageError as error:
        return _failed(str(error), WRONG_USAGE)
    except Declined as error:
        return _failed(str(error), FINDINGS)
    except (StoreError, StartError) as error:
        return _failed(str(error), CANNOT)
    except BrokenPipeError:  # ends the program quietly
        raise
    except OSError as error:
        return _failed(f"{error.filename or 'the store'}: {error.strerror or error}", CANNOT)
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED)


def _failed(text: str, code: int) -> int:
    print(f"firearrow store: {text}", file=sys.stderr)
    return code


def verify_store(given: VerifyArguments) -> int:
    """Check every record, queue entry, index slot and small file of a store. Nothing is changed, and the exit code is
    1 if there are findings.

        firearrow store verify ~/firearrow/store
        firearrow store verify ~/firearrow/store --live --json
    """
    with held(given.root, live=given.live):
        checks = given.checks(crc=given.crc, index=given.index)
        verified = verify.verify(given.root, checks)
    if given.json:
        report.print_json(report.as_object(verified))
    else:
        report.show(verified)
    return OK if verified.clean else FINDINGS


def repair_store(given: RepairArguments) -> int:
    """Verify a stopped store and repair it. Originals of changed files are kept in a folder removed-TIME of the
    store.

        firearrow store repair ~/firearrow/store --dry-run
        firearrow store repair ~/firearrow/store --drop-damaged --yes
    """
    root, delays_ms = given.root, given.delays_ms()
    with held(root, write=True):
        checks = given.checks()
        work = repair.Repair(
            root,
            verify.verify(root, checks),
            repair.RepairOptions(
                given.cut_log_at, given.drop_damaged, given.reset_offsets, delays_ms, given.index_slots
            ),
        )
        plan = work.plan()
        if not given.json:
            print(
                "\n".join(
                    [f"{step.text}" for step in plan.steps]
                    + [f"not repaired: {text}" for text in plan.not_repaired]
                )
            )
        if plan.steps and not given.dry_run:
            given.confirm(f"Run these {len(plan.steps)} steps on {root}?")
            work.run(plan, lambda _: None)
    after = verify.verify(root, checks)
    if given.json:
        steps = [step.text for step in plan.steps]
        report.print_json(
            {
                "steps": steps,
                "left": plan.not_repaired,
                "done": not given.dry_run,
                "kept": work.quarantine.kept,
                "removed": str(work.quarantine.folder) if work.quarantine.kept else None,
                "after": report.as_object(after),
            }
        )
    else:
        if work.quarantine.kept:
            print(f"originals: {work.quarantine.folder}")
        report.show(after)
    return OK if after.clean else FINDINGS


def backup_store(given: BackupArguments) -> int:
    """Copy a store, also that of a running broker. To restore it, copy the backup.

    firearrow store backup ~/firearrow/store /backup/monday
    firearrow store backup ~/firearrow/store /backup/tuesday --beside /backup/monday --verify
    """
    target = given.target
    options = backup.BackupOptions(given.beside, not given.copy, given.check, given.jobs, given.quiet)
    made, verified = backup.backup(given.root, target, options)
    if given.json:
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
        text = f"the copy has findings and stays in {target}{backup.UNFINISHED}; {target} is not changed"
        return _failed(text, FINDINGS)
    return OK


def promote_store(given: PromoteArguments) -> None:
    """Make the stopped store of a slave the store of a master. Its old master may only start as a slave afterwards.

    firearrow store promote ~/firearrow/store
    firearrow store promote ~/firearrow/store --role SYNC_MASTER --yes
    """
    root = given.root
    with held(root, write=True):
        given.confirm(f"Make {root} the store of the master?")
        promoted = promote_stopped(root, given.role or "", force=given.force)
    print(
        f"{root} is a master's store now, of epoch {promoted.epoch}. Start it: firearrow broker --store {root}, with "
        f"its options; set brokerRole={promoted.master_role} and brokerId=0 in its configuration. Start its old master "
        "as a slave only"
    )


def reset_epoch_of_store(given: ConfirmedArguments) -> None:
    """Remove the fence of a stopped store, and an epoch that no promotion can have had. Start it only if no other
    master of its brokerName runs.

        firearrow store reset-epoch ~/firearrow/store
        firearrow store reset-epoch ~/firearrow/store --yes
    """
    root = given.root
    with held(root, write=True):
        given.confirm(f"Let {root} have the role of its configuration again, whatever fenced it?")
        reset = reset_epoch(root)
    print(
        f"{root} is of epoch {reset.after} now, it was {reset.before}"
        + (
            ", and is fenced no more: start it only if no other master of its brokerName runs"
            if reset.was_fenced
            else ""
        )
    )


def rebuild_store(given: ConfirmedArguments) -> None:
    """Let a stopped slave start again with an empty log. The old log is kept below the folder damaged of the store.

    firearrow store rebuild ~/firearrow/store
    firearrow store rebuild ~/firearrow/store --yes
    """
    root = given.root
    with held(root, write=True):
        given.confirm(f"Set the log of {root} aside?")
        kept = rebuild_stopped(root)
    print(f"{root} copies the whole log from its master at its next start; {kept.text}")


def stat_store(given: ReportArguments) -> None:
    """Show sizes, messages by topic and queue, times, the lag of groups, and waste of a store. A broker may run on
    it.

        firearrow store stat ~/firearrow/store
        firearrow store stat ~/firearrow/store --json
    """
    check_folder(given.root)
    statistics = stat.stat(given.root, jobs=given.jobs, quiet=given.quiet)
    if given.json:
        report.print_json(statistics)
    else:
        print("\n".join(map(dump.printable, stat.lines(statistics))))


def dump_store(given: DumpArguments) -> None:
    """Print records, queue entries, index headers or the checkpoint of a store. A broker may run on it.

    firearrow store dump ~/firearrow/store --topic orders --limit 10
    firearrow store dump ~/firearrow/store --topic orders --queue 0 --queue-entries
    """
    root, as_json = given.root, given.json
    check_folder(root)
    if sum((given.entries, given.index, given.checkpoint)) > 1:
        raise UsageError("use only one of --queue-entries, --index, --checkpoint")
    if given.entries:
        if given.topic is None or given.queue is None:
            raise UsageError("--queue-entries needs --topic and --queue")
        found = dump.entry_rows(root, given.topic, given.queue, given.from_offset)
        dump.print_rows(found, json=as_json, limit=given.limit)
    elif given.index:
        dump.print_rows(dump.index_rows(root, given.index_slots), json=as_json, limit=given.limit)
    elif given.checkpoint:
        dump.print_rows(iter((dump.checkpoint_row(root),)), json=as_json)
    else:
        _dump_records(given)


def _dump_records(given: DumpArguments) -> None:
    body, folder = dump.BodyFormat(given.body), given.body_folder
    if (body is dump.BodyFormat.FILE) != (folder is not None):
        raise UsageError("--body file and --body-folder FOLDER must be used together")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    printer = dump.RecordPrinter(body, folder)
    found = records(
        given.root, given.query(), lambda text: print(f"firearrow store: {text}", file=sys.stderr)
    )
    dump.print_all(found, printer.row if given.json else None, printer.line)
