"""Repair: a stopped store mended after what `verify` found. The log is the truth: queues, index and checkpoint are
built from it anew; of the log itself only a torn tail is cut, unless more is asked for.

What is changed or taken away is kept first (`Quarantine`). The building is the store's own recovery, made to walk the
whole log. The caller's thread.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from firearrow._native.audit.findings import Finding, Kind
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.offline.queue_reader import ENTRY, PRE_BLANK_SIZE
from firearrow._native.offline.segment_files import SegmentFile, rolled_files, segment_at
from firearrow._native.store.files.errors import StoreDamaged, StoreUnreadable
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.options import Options
from firearrow.broker.maintenance.backup_copy import copy_file, sync_path
from firearrow.broker.maintenance.dump import is_boundary
from firearrow.broker.maintenance.quarantine import Quarantine
from firearrow.broker.maintenance.repair_configs import repair_config, reset_offsets
from firearrow.broker.maintenance.store_layout import StoreLayout
from firearrow.broker.maintenance.verify import VerifyOptions, VerifyResult, verify

LOG_DAMAGE = frozenset((Kind.MISSING_SEGMENT, Kind.CUT_FILE, Kind.TORN, Kind.HOLE, Kind.BAD_CRC))
QUEUE_DAMAGE = frozenset(
    (Kind.NO_ENTRY, Kind.WRONG_ENTRY, Kind.WRONG_TAGS, Kind.LOST_RECORD, Kind.QUEUE_GAP, Kind.QUEUE_ORDER)
)
INDEX_DAMAGE = frozenset(
    (Kind.NO_KEY, Kind.WRONG_KEY, Kind.INDEX_CHAIN, Kind.INDEX_SLOT, Kind.INDEX_ORDER, Kind.INDEX_FILE)
)
ROUNDS_MAX = 10_000
SIZE_AT = 8
BLANK = PRE_BLANK_SIZE.to_bytes(4, "big") + bytes(8)
"""Size and tags code of an entry that shows nothing."""
BUILT = LOG_DAMAGE | QUEUE_DAMAGE | INDEX_DAMAGE | {Kind.TORN_TAIL, Kind.CHECKPOINT, Kind.UNREADABLE}
"""What makes the walk over the whole log necessary."""


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """More than a repair does by itself. `cut_log_at`: physical offset, None not; delays of the levels in ms."""

    cut_log_at: int | None = None
    drop_damaged: bool = False
    reset_offsets: bool = False
    delay_levels_ms: tuple[int, ...] = Options().delay_levels_ms
    index_slots: int = 0


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing to be done, told in one sentence, and how."""

    text: str
    run: Callable[[], object]


@dataclass(slots=True)
class RepairPlan:
    """`left`: findings that nothing of it mends, each with why."""

    steps: list[RepairStep] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Repair:
    """Of a store that is held. `plan`, then `run` once; what was kept is in `quarantine`."""

    def __init__(self, root: str, found: VerifyResult, options: RepairOptions) -> None:
        self._root, self._found, self._options = Path(root).absolute(), found, options
        self._layout = StoreLayout.of(str(self._root), options.index_slots)
        self.quarantine = Quarantine(self._root)

    def plan(self) -> RepairPlan:
        """StoreUnreadable: what is asked for cannot be done. StoreDamaged: more has to be asked for."""
        plan, options = RepairPlan(), self._options
        kinds = {Kind(kind) for kind in self._found.seen.findings.totals}
        if options.cut_log_at is not None:
            self._plan_cut(plan, options.cut_log_at)
        elif kinds & LOG_DAMAGE:
            self._plan_dropping(plan)
        self._plan_tail(plan)
        self._plan_derived(plan, kinds)
        self._plan_config(plan)
        if kinds & BUILT or options.cut_log_at is not None:
            plan.steps.append(
                RepairStep("queues, index and checkpoint are brought to agree with the log", self._build)
            )
            if options.drop_damaged:
                plan.steps.append(RepairStep("entries of what is lost become blanks", self._blank))
        self._plan_offsets(plan, kinds)
        self._plan_timer(plan)
        for each in self._found.findings:
            if each.kind is Kind.JOURNAL:
                plan.left.append(f"{each.kind}: {each.file}: the broker's start sees to it")
        return plan

    def run(self, plan: RepairPlan, told: Callable[[str], None]) -> None:
        """OSError, StoreDamaged: what was not reached is as it was."""
        for step in plan.steps:
            told(step.text)
            step.run()

    # ---- the log ----

    def _plan_cut(self, plan: RepairPlan, place: int) -> None:
        segments = self._segments()
        at = segment_at(segments, place)
        if at is None or not is_boundary(str(self._root), place):
            raise StoreUnreadable(
                f"--cut-log-at {place}: no record begins there: `firearrow store dump` shows where they begin"
            )
        behind = [each for each in segments if each.base > place]
        plan.steps.append(RepairStep(f"the log is cut at {place}", partial(self._cut, at, place)))
        for each in behind:
            plan.steps.append(
                RepairStep(f"{each.path} is taken away", partial(self.quarantine.move, Path(each.path)))
            )
        for damage in self._log_damage():
            if (damage.physical_offset or 0) < place:
                self._plan_dropping(plan)
                return

    def _cut(self, segment: SegmentFile, place: int) -> None:
        path = Path(segment.path)
        self.quarantine.copy_from(path, place - segment.base)
        self._own(path)
        with path.open("r+b") as file:
            file.truncate(place - segment.base)
            file.truncate(segment.length)
            os.fsync(file.fileno())

    def _plan_dropping(self, plan: RepairPlan) -> None:
        """Recovery puts fillers over what it cannot read: what it overwrites is kept here first."""
        damage = self._log_damage()
        if not self._options.drop_damaged:
            first = damage[0]
            raise StoreDamaged(
                f"{len(damage)} places inside the log are damaged, the first is {first.file} at {first.position}: "
                "restore from a backup, or let go of those messages with --drop-damaged; nothing was changed"
            )
        for path in dict.fromkeys(Path(each.file) for each in damage):
            if path.exists():
                plan.steps.append(
                    RepairStep(
                        f"{path}: what is damaged gives way to fillers",
                        partial(self._keep_log, path),
                    )
                )

    def _keep_log(self, path: Path) -> None:
        self.quarantine.copy(path)
        self._own(path)

    def _plan_tail(self, plan: RepairPlan) -> None:
        for each in self._found.findings:
            cut_before = (
                self._options.cut_log_at is not None
                and (each.physical_offset or 0) >= self._options.cut_log_at
            )
            if each.kind is Kind.TORN_TAIL and not cut_before:
                plan.steps.append(
                    RepairStep(f"{each.file} is cut at {each.position}", partial(self._keep_tail, each))
                )

    def _keep_tail(self, tail: Finding) -> None:
        self.quarantine.copy_from(Path(tail.file), tail.position)
        self._own(Path(tail.file))

    def _own(self, path: Path) -> None:
        """A file that a backup shares is copied before it is written to."""
        if path.stat().st_nlink > 1:
            fresh = path.with_name(f".{path.name}.own")
            fresh.unlink(missing_ok=True)
            copy_file(str(path), str(fresh), lambda _: None)
            sync_path(str(fresh))
            fresh.replace(path)

    def _log_damage(self) -> list[Finding]:
        return [each for each in self._found.findings if each.kind in LOG_DAMAGE]

    def _segments(self) -> list[SegmentFile]:
        return AuditedStore("", str(self._root)).segments()

    # ---- what is built from it ----

    def _plan_derived(self, plan: RepairPlan, kinds: set[Kind]) -> None:
        findings = self._found.findings
        if kinds & QUEUE_DAMAGE:
            folders = {
                self._root / "consumequeue" / (each.topic or "") / str(each.queue_id)
                for each in findings
                if each.kind in QUEUE_DAMAGE
            }
            for folder in sorted(each for each in folders if each.is_dir()):
                plan.steps.append(
                    RepairStep(f"{folder} is kept as it is", partial(self.quarantine.copy, folder))
                )
        queues = self._root / "consumequeue"
        for path in (Path(each.file) for each in findings if each.kind is Kind.UNREADABLE):
            if queues in path.parents:
                plan.steps.append(RepairStep(f"{path} is taken away", partial(self.quarantine.move, path)))
        if kinds & INDEX_DAMAGE:
            for path in sorted((self._root / "index").glob("*")):
                plan.steps.append(RepairStep(f"{path} is taken away", partial(self.quarantine.move, path)))

    def _build(self) -> None:
        """As after a clean stop without a checkpoint: then recovery walks all, and looks behind each damage. A store
        that was killed stays one, for its journal counts only so."""
        checkpoint, abort = self._root / "checkpoint", self._root / "abort"
        word = abort.read_bytes() if abort.exists() else None
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
                self._zero_behind(self._root / "consumequeue" / topic / str(queue_id), end * ENTRY.size)
        finally:
            if word is not None:
                abort.write_bytes(word)
                sync_path(str(abort))
                sync_path(str(self._root))

    def _zero_behind(self, folder: Path, end: int) -> None:
        """Recovery does not look at what a queue's files hold behind its end, until the queue comes there."""
        for file in rolled_files(str(folder)):
            with Path(file.path).open("r+b") as opened:
                opened.seek(max(end - file.base, 0))
                if file.end > end and opened.read().strip(b"\0"):
                    opened.truncate(max(end - file.base, 0))
                    os.posix_fallocate(opened.fileno(), 0, file.length)
                    os.fsync(opened.fileno())

    def _blank(self) -> None:
        """Readers step over blanks; a rebuilt queue has such, too. Each round learns of those that were not listed."""
        for _ in range(ROUNDS_MAX):
            now = verify(str(self._root), VerifyOptions(crc=False, index=False, jobs=1))
            log = now.seen.log
            lost = [
                each
                for each in now.findings
                if each.kind is Kind.LOST_RECORD
                or (each.kind is Kind.QUEUE_ORDER and not log.start <= (each.physical_offset or 0) < log.end)
            ]
            for each in lost:
                self._blank_run(each)
            if not lost:
                return

    def _blank_run(self, lost: Finding) -> None:
        """A run of entries may go over from one file to the next."""
        assert lost.topic is not None
        assert lost.queue_offset is not None
        files = rolled_files(str(self._root / "consumequeue" / lost.topic / str(lost.queue_id)))
        for number in range(lost.queue_offset, lost.queue_offset + lost.count):
            file = segment_at(files, number * ENTRY.size)
            if file is not None:
                with Path(file.path).open("r+b") as opened:
                    opened.seek(number * ENTRY.size - file.base + SIZE_AT)
                    opened.write(BLANK)

    # ---- config ----

    def _plan_timer(self, plan: RepairPlan) -> None:
        """Wheel and log go together, for neither stands without the other; a good check point stays and tells what was
        fired."""
        check, others = self._root / "config/timercheck", (self._root / "timerwheel", self._root / "timerlog")
        found = {Path(each.file) for each in self._found.findings if each.kind is Kind.TIMER}
        gone = [*others, check] if check in found else list(others)
        if found:
            plan.steps.extend(
                RepairStep(
                    f"{path} is taken away, the next start lays anew what waits",
                    partial(self.quarantine.move, path),
                )
                for path in gone
                if path.exists()
            )

    def _plan_config(self, plan: RepairPlan) -> None:
        for each in self._found.findings:
            if each.kind is Kind.CONFIG:
                path = Path(each.file)
                text = repair_config(path, self.quarantine, drop=self._options.drop_damaged, dry=True)
                if text is None:
                    plan.left.append(f"{path}: there is no good .bak; --drop-damaged takes both away")
                else:
                    work = partial(repair_config, path, self.quarantine, drop=self._options.drop_damaged)
                    plan.steps.append(RepairStep(text, work))

    def _plan_offsets(self, plan: RepairPlan, kinds: set[Kind]) -> None:
        """Last, for a queue's end may be another one then."""
        if self._options.reset_offsets:
            plan.steps.append(
                RepairStep("offsets of groups go back to the ends of their queues", self._reset)
            )
        elif Kind.OFFSET_BEYOND in kinds:
            plan.left.append("offsets of groups beyond the ends of their queues: --reset-offsets moves them")

    def _reset(self) -> None:
        now = verify(str(self._root), VerifyOptions(crc=False, index=False, jobs=1))
        reset_offsets(
            self._root, {name: queue.end for name, queue in now.seen.queues.items()}, self.quarantine
        )
