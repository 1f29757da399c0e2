"""Checks a whole store, from its log to its smallest file. Reads only. The caller's thread.

`_native.store_checks` has the checks; log, queues and index are checked in several processes. Damage becomes a finding,
never an error.
"""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.audit import StoreAudit, StoreResult
from firearrow._native.store_checks.compaction_files import check_compaction_files
from firearrow._native.store_checks.findings import Add, Kind, StoreFinding
from firearrow._native.store_checks.small_files import check_checkpoint, check_config_files, check_journal
from firearrow._native.store_checks.timer_files import check_timer_files
from firearrow.broker.maintenance.lock import check_folder
from firearrow.broker.maintenance.process_pool import ProcessExecutor
from firearrow.broker.replication.log.epoch_file import FILE_NAME as EPOCHS
from firearrow.broker.replication.log.epoch_file import decoded


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What to check. `jobs` 0: one process per core; `index_slots` 0: derived from the files."""

    crc: bool = True
    index: bool = True
    index_slots: int = 0
    delays_s: tuple[int, ...] = ()
    jobs: int = 0
    quiet: bool = True


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """`bytes`: of all records read. `findings`: in order; a verify lists only some of each kind."""

    seen: StoreResult
    bytes: int
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.seen.findings

    @property
    def findings(self) -> list[StoreFinding]:
        return self.seen.findings.ordered()


def verify(root: str, checks: VerifyOptions | None = None) -> VerifyResult:
    """Check the store at `root`. Raises StoreUnreadable if it is not a store or cannot be read; OSError."""
    checks = checks or VerifyOptions()
    began = time.monotonic()
    check_folder(root)
    root = os.path.abspath(root)
    store = StoreFolder(os.path.basename(root), root)
    with ProcessExecutor(
        sum(each.length for each in store.segments()), jobs=checks.jobs, quiet=checks.quiet
    ) as executor:
        seen = StoreAudit(
            store,
            executor,
            check_crc=checks.crc,
            with_index=checks.index,
            delays_s=checks.delays_s,
            index_slots=checks.index_slots,
        ).run()
    newest_ms = max((last for _, last in seen.counts.times.values()), default=0)
    _check_small_files(store, 0 if store.is_running() else newest_ms, seen)
    return VerifyResult(seen, seen.numbers["log_bytes"], time.monotonic() - began)


def _check_small_files(store: StoreFolder, newest_ms: int, seen: StoreResult) -> None:
    """`newest_ms`: store time of the newest record in the log, 0 if the log is empty."""
    root, add = Path(store.root), partial(seen.findings.add_in, store.name)
    for check in (
        partial(check_checkpoint, root, newest_ms, add),
        partial(check_config_files, root, add, seen.state),
        partial(check_journal, root, add, seen.state),
        partial(_check_epochs, root, add),
        partial(check_timer_files, root, add, seen.state),
        partial(check_compaction_files, store, add, seen.state),
    ):
        try:
            check()
        except OSError as error:
            add(Kind.UNREADABLE, Path(error.filename or root), 0, f"it cannot be read: {error.strerror}")


def _check_epochs(root: Path, add: Add) -> None:
    """The epochs of the log, Apache's or FireArrow's, and `.bak`."""
    for path in (root / EPOCHS, root / f"{EPOCHS}.bak"):
        if not path.exists():
            continue
        try:
            decoded(path.read_bytes())
        except ValueError as error:
            add(Kind.CONFIG, path, 0, f"it is damaged: {error}")
