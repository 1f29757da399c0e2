"""Repairs a stopped store after `verify`.

The log decides: queues, index and checkpoint are rebuilt from it. Of the log itself only a torn tail is
truncated, unless the options allow more. Originals of what is changed or removed are kept first
(`Quarantine`). The rebuild is the store's own recovery, made to read the whole log. The caller's thread.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from firearrow._native.offline.queue_reader import BATCH_FOLDER, ENTRY, PRE_BLANK_SIZE, is_batch_folder
from firearrow._native.offline.segment_files import SegmentFile, rolled_files, segment_at
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.files.errors import StoreDamaged, StoreUnreadable
from firearrow._native.store.message_store import MessageStore
from firearrow._native.store_checks.findings import (
    INDEX_DAMAGE,
    LOG_DAMAGE,
    QUEUE_DAMAGE,
    Extent,
    Kind,
    StoreFinding,
)
from firearrow.broker.base.options import Options
from firearrow.broker.maintenance.backup_copy import copy_file, sync_path
from firearrow.broker.maintenance.dump import is_boundary
from firearrow.broker.maintenance.quarantine import Quarantine
from firearrow.broker.maintenance.repair_configs import repair_config, reset_offsets
from firearrow.broker.maintenance.store_layout import StoreLayout
from firearrow.broker.maintenance.verify import VerifyOptions, VerifyResult, verify

ROUNDS_MAX = 10_000
SIZE_AT = 8
BLANK = PRE_BLANK_SIZE.to_bytes(4, "big") + bytes(8)
"""Size and tags code of a blank entry."""
REBUILT = LOG_DAMAGE | QUEUE_DAMAGE | INDEX_DAMAGE | {Kind.TORN_TAIL, Kind.CHECKPOINT, Kind.UNREADABLE}
"""Findings that need a rebuild from the whole log."""


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """`cut_log_at`: physical offset at which to truncate the log, None: do not.

    `delay_levels_ms`: delays of the levels.
    """

    cut_log_at: int | None = None
    drop_damaged: bool = False
    reset_offsets: bool = False
    delay_levels_ms: tuple[int, ...] = Options().delay_levels_ms
    index_slots: int = 0


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change, described by `text`."""

    text: str
    run: Callable[[], object]


@dataclass(slots=True)
class RepairPlan:
    """`not_repaired`: findings that no step repairs, each with the reason."""

    steps: list[RepairStep] = field(default_factory=list)
    not_repaired: list[str] = field(default_factory=list)


class Repair:
    """The caller holds the store's lock. Call `plan`, then `run` once; originals are in `quarantine`."""

    def __init__(self, root: str, found: VerifyResult, options: RepairOptions) -> None:
        self._root, self._found, self._options = Path(root).absolute(), found, options
        self._layout = StoreLayout.of(str(self._root), options.index_slots)
        self._store = StoreFolder("", str(self._root))
        self.quarantine = Quarantine(self._root)

    def plan(self) -> RepairPlan:
        """Raises StoreUnreadable for an impossible option, StoreDamaged if more options are needed."""
        plan, options = RepairPlan(), self._options
        kinds = set(self._found.seen.findings.totals)
        if options.cut_log_at is not None:
            self._plan_cut(plan, options.cut_log_at)
        elif kinds & LOG_DAMAGE:
            self._plan_dropping(plan)
        self._plan_tail(plan)
        self._plan_derived(plan, kinds)
        self._plan_config(plan)
        if kinds & REBUILT or options.cut_log_at is not None:
            plan.steps.append(RepairStep("rebuild queues, index and checkpoint from the log", self._rebuild))
            if options.drop_damaged:
                plan.steps.append(
                    RepairStep("replace queue entries of lost messages by blanks", self._blank_lost)
                )
        self._plan_offsets(plan, kinds)
        self._plan_timer(plan)
        for each in self._found.findings:
            if each.kind is Kind.JOURNAL:
                plan.not_repaired.append(
                    f"{each.kind}: {each.where.file}: the broker handles it at its next start"
                )
        return plan

    def run(self, plan: RepairPlan, report: Callable[[str], None]) -> None:
        """Run the steps in order. Raises OSError, StoreDamaged; later steps are then not done."""
        for step in plan.steps:
            report(step.text)
            step.run()

    # ---- the log ----

    def _plan_cut(self, plan: RepairPlan, offset: int) -> None:
        segments = self._segments()
        at = segment_at(segments, offset)
        if at is None or not is_boundary(str(self._root), offset):
            raise StoreUnreadable(
                f"--cut-log-at {offset}: no record begins there; `firearrow store dump` prints such offsets"
            )
        following = [each for each in segments if each.base > offset]
        plan.steps.append(RepairStep(f"truncate the log at {offset}", partial(self._truncate, at, offset)))
        for each in following:
            plan.steps.append(
                RepairStep(f"remove {each.path}", partial(self.quarantine.move, Path(each.path)))
            )
        for damage in self._log_damage():
            if (damage.where.physical_offset or 0) < offset:
                self._plan_dropping(plan)
                return

    def _truncate(self, segment: SegmentFile, offset: int) -> None:
        path = Path(segment.path)
        self.quarantine.copy_from(path, offset - segment.base)
        self._unshare(path)
        with path.open("r+b") as file:
            file.truncate(offset - segment.base)
            file.truncate(segment.length)
            os.fsync(file.fileno())

    def _plan_dropping(self, plan: RepairPlan) -> None:
        """Recovery overwrites unreadable parts with filler records: keep the originals first."""
        damage = self._log_damage()
        if not self._options.drop_damaged:
            first = damage[0].where
            raise StoreDamaged(
                f"the log is damaged in {len(damage)} places, first in {first.file} at {first.position}: "
                "restore a backup, or drop those messages with --drop-damaged; nothing was changed"
            )
        for path in dict.fromkeys(Path(each.where.file) for each in damage):
            if path.exists():
                plan.steps.append(
                    RepairStep(
                        f"replace damaged parts of {path} by filler records",
                        partial(self._keep_log, path),
                    )
                )

    def _keep_log(self, path: Path) -> None:
        self.quarantine.copy(path)
        self._unshare(path)

    def _plan_tail(self, plan: RepairPlan) -> None:
        for each in self._found.findings:
            truncated_before = (
                self._options.cut_log_at is not None
                and (each.where.physical_offset or 0) >= self._options.cut_log_at
            )
            if each.kind is Kind.TORN_TAIL and not truncated_before:
                text = f"truncate {each.where.file} at {each.where.position}"
                plan.steps.append(RepairStep(text, partial(self._keep_tail, each.where)))

    def _keep_tail(self, tail: Extent) -> None:
        self.quarantine.copy_from(Path(tail.file), tail.position)
        self._unshare(Path(tail.file))

    def _unshare(self, path: Path) -> None:
        """Unshare a file that a backup links to, before it is written to."""
        if path.stat().st_nlink > 1:
            fresh = path.with_name(f".{path.name}.own")
            fresh.unlink(missing_ok=True)
            copy_file(str(path), str(fresh), lambda _: None)
            sync_path(str(fresh))
            fresh.replace(path)

    def _log_damage(self) -> list[StoreFinding]:
        return [each for each in self._found.findings if each.kind in LOG_DAMAGE]

    def _segments(self) -> list[SegmentFile]:
        return self._store.segments()

    # ---- queues and index ----

    def _plan_derived(self, plan: RepairPlan, kinds: set[str]) -> None:
        findings = self._found.findings
        if kinds & QUEUE_DAMAGE:
            folders = {
                Path(self._store.folder_of(each.where.topic or "", each.where.queue_id or 0))
                for each in findings
                if each.kind in QUEUE_DAMAGE
            }
            for folder in sorted(each for each in folders if each.is_dir()):
                plan.steps.append(
                    RepairStep(f"copy {folder} before the rebuild", partial(self.quarantine.copy, folder))
                )
        queues = {self._root / "consumequeue", self._root / BATCH_FOLDER}
        for path in (Path(each.where.file) for each in findings if each.kind is Kind.UNREADABLE):
            if not queues.isdisjoint(path.parents):
                plan.steps.append(RepairStep(f"remove {path}", partial(self.quarantine.move, path)))
        if kinds & INDEX_DAMAGE:
            for path in sorted((self._root / "index").glob("*")):
                plan.steps.append(RepairStep(f"remove {path}", partial(self.quarantine.move, path)))

    def _rebuild(self) -> None:
        """Open the store as after a clean stop without a checkpoint: recovery then reads everything, also
        after damage.

        The abort file of a killed store is restored, because its journal counts only with it.
        """
        checkpoint, abort = self._root / "checkpoint", self._root / "abort"
        abort_text = abort.read_bytes() if abort.exists() else None
        if checkpoint.exists():
            self.quarantine.move(checkpoint)
        abort.unlink(missing_ok=True)
        try:
            levels = self._options.delay_levels_ms
            config = dataclasses.replace(self._layout.config(), delay_levels_ms=levels)
            store = MessageStore.open(self._root, config)
            ends = {name: store.reader.max_offset(*name) for name in store.reader.queues()}
            store.close()
            for (topic, queue_id), end in ends.items():
                folder = self._store.folder_of(topic, queue_id)
                if not is_batch_folder(
                    folder
                ):  # recovery has written a batch queue again, from its first file on
                    self._zero_after(Path(folder), end * ENTRY.size)
        finally:
            if abort_text is not None:
                abort.write_bytes(abort_text)
                sync_path(str(abort))
                sync_path(str(self._root))

    def _zero_after(self, folder: Path, end: int) -> None:
        """Clear a queue's files after its end, which recovery does not read."""
        for file in rolled_files(str(folder)):
            with Path(file.path).open("r+b") as opened:
                opened.seek(max(end - file.base, 0))
                if file.end > end and opened.read().strip(b"\0"):
                    opened.truncate(max(end - file.base, 0))
                    os.posix_fallocate(opened.fileno(), 0, file.length)
                    os.fsync(opened.fileno())

    def _blank_lost(self) -> None:
        """Replace lost entries by blanks, which readers skip.

        Repeated, because a verify lists only some findings.
        """
        for _ in range(ROUNDS_MAX):
            now = verify(str(self._root), VerifyOptions(crc=False, index=False, jobs=1))
            log = now.seen.log
            lost = [
                each.where
                for each in now.findings
                if each.kind is Kind.LOST_RECORD
                or (
                    each.kind is Kind.QUEUE_ORDER
                    and not log.start <= (each.where.physical_offset or 0) < log.end
                )
            ]
            for each in lost:
                self._blank_entries(each)
            if not lost:
                return

    def _blank_entries(self, lost: Extent) -> None:
        """The entries of one finding may continue in the next file."""
        assert lost.topic is not None
        assert lost.queue_offset is not None
        folder = self._store.folder_of(lost.topic, lost.queue_id or 0)
        if is_batch_folder(folder):  # recovery has left no entry without a record
            return
        files = rolled_files(folder)
        for number in range(lost.queue_offset, lost.queue_offset + lost.count):
            file = segment_at(files, number * ENTRY.size)
            if file is not None:
                with Path(file.path).open("r+b") as opened:
                    opened.seek(number * ENTRY.size - file.base + SIZE_AT)
                    opened.write(BLANK)

    # ---- config ----

    def _plan_timer(self, plan: RepairPlan) -> None:
        """Remove wheel and log together, since they refer to each other; a good checkpoint stays."""
        check, others = self._root / "config/timercheck", (self._root / "timerwheel", self._root / "timerlog")
        found = {Path(each.where.file) for each in self._found.findings if each.kind is Kind.TIMER}
        gone = [*others, check] if check in found else list(others)
        if found:
            plan.steps.extend(
                RepairStep(
                    f"remove {path}; the next start restores pending timer messages",
                    partial(self.quarantine.move, path),
                )
                for path in gone
                if path.exists()
            )

    def _plan_config(self, plan: RepairPlan) -> None:
        for each in self._found.findings:
            if each.kind is Kind.CONFIG:
                path = Path(each.where.file)
                text = repair_config(path, self.quarantine, drop=self._options.drop_damaged, dry=True)
                if text is None:
                    plan.not_repaired.append(f"{path}: it has no valid .bak; --drop-damaged removes both")
                else:
                    work = partial(repair_config, path, self.quarantine, drop=self._options.drop_damaged)
                    plan.steps.append(RepairStep(text, work))

    def _plan_offsets(self, plan: RepairPlan, kinds: set[str]) -> None:
        """Planned last, because the rebuild may change the ends of queues."""
        if self._options.reset_offsets:
            plan.steps.append(RepairStep("move offsets beyond the end of a queue to its end", self._reset))
        elif Kind.OFFSET_BEYOND in kinds:
            plan.not_repaired.append("offsets of groups beyond the ends of their queues: use --reset-offsets")

    def _reset(self) -> None:
        now = verify(str(self._root), VerifyOptions(crc=False, index=False, jobs=1))
        reset_offsets(
            self._root, {name: queue.end for name, queue in now.seen.queues.items()}, self.quarantine
        )
