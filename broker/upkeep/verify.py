"""Verification: one store looked at whole, from its log to its smallest file. Writes nothing.

Log, queues, index and groups are the audit's, over processes; the small files are ours. The caller's thread.
"""

import os
import time
from dataclasses import dataclass

from firearrow._native.audit.audit import StoreAudit, StoreResult
from firearrow._native.audit.findings import Finding
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.checks.log_records import APACHE_DELAYS_S
from firearrow.broker.upkeep.lane import ProcessExecutor
from firearrow.broker.upkeep.lock import check_folder
from firearrow.broker.upkeep.offsets import group_offsets
from firearrow.broker.upkeep.smallfiles import check_small_files
from firearrow.broker.upkeep.timerfiles import check_timer_files


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What is asked for. `jobs` 0: a process for each core; `index_slots` 0: told from the files."""

    crc: bool = True
    index: bool = True
    index_slots: int = 0
    delays_s: tuple[int, ...] = APACHE_DELAYS_S
    jobs: int = 0
    quiet: bool = True


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """`bytes`: of records that were read. `findings` in order, as many as are listed."""

    seen: StoreResult
    bytes: int
    seconds: float

    @property
    def clean(self) -> bool:
        return not self.seen.findings

    @property
    def findings(self) -> list[Finding]:
        return self.seen.findings.ordered()


def verify(root: str, checks: VerifyOptions | None = None) -> VerifyResult:
    """StoreUnreadable: it is no store, or cannot be read at all. OSError."""
    checks = checks or VerifyOptions()
    began = time.monotonic()
    check_folder(root)
    root = os.path.abspath(root)
    store = AuditedStore(os.path.basename(root), root)
    with ProcessExecutor(
        sum(each.length for each in store.segments()), jobs=checks.jobs, quiet=checks.quiet
    ) as executor:
        seen = StoreAudit(
            store, executor, group_offsets, check_crc=checks.crc, with_index=checks.index, delays_s=checks.delays_s,
            index_slots=checks.index_slots,
        ).run()  # fmt: skip
    newest_ms = max((last for _, last in seen.counts.times.values()), default=0)
    check_small_files(root, 0 if store.is_running() else newest_ms, seen.findings, seen.state)
    check_timer_files(root, seen.findings, seen.state)
    return VerifyResult(seen, seen.numbers["log_bytes"], time.monotonic() - began)
