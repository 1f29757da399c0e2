"""Checks a whole store, from its log to its smallest file. Reads only. The caller's thread.

`StoreAudit` checks log, queues, index and groups, in several processes; this module checks the small files:
checkpoint, config, journal. Damage there becomes a finding, never an error. It also reads the groups' offsets
from the config files (`group_offsets`, any thread).
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.protocol import fastjson
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.checkpoint import FILE_BYTES as CHECKPOINT_BYTES
from firearrow._native.store.log.checkpoint import NUMBERS
from firearrow._native.store_checks.audit import StoreAudit, StoreResult
from firearrow._native.store_checks.findings import Extent, Findings, Kind, StoreFinding
from firearrow.broker.append.progress_journal import HEAD, SPARE, entries_of
from firearrow.broker.maintenance.lock import check_folder
from firearrow.broker.maintenance.process_pool import ProcessExecutor
from firearrow.broker.maintenance.verify_timers import check_timer_files
from firearrow.broker.replication.epoch_file import FILE_NAME as EPOCHS
from firearrow.broker.replication.epoch_file import decoded

CONFIG_OTHERS = ("timermetrics", "transactionMetrics", "consumerOrderInfo")
TABLES = {
    "topics.json": ("topicConfigTable",),
    "subscriptionGroup.json": ("subscriptionGroupTable",),
    "consumerOffset.json": ("offsetTable",),
    "lmqConsumerOffset.json": ("offsetTable",),
    "delayOffset.json": ("offsetTable",),
}
"""Config file → members that must be objects."""
JOURNAL_NAME = re.compile(r".+\.\d{10}")
Add = Callable[[Kind, Path, int, str], None]


def check_small_files(root: str, newest_ms: int, findings: Findings, notes: list[str]) -> None:
    """`newest_ms`: store time of the newest record in the log, 0 if the log is empty."""

    def add(kind: Kind, path: Path, position: int, text: str) -> None:
        findings.add(kind.finding(Extent(Path(root).name, str(path), position), text))

    folder = Path(root)
    for check in (
        partial(_checkpoint, folder, newest_ms, add),
        partial(_config, folder, add, notes),
        partial(_journal, folder, add, notes),
        partial(_epochs, folder, add),
    ):
        try:
            check()
        except OSError as error:
            add(Kind.UNREADABLE, Path(error.filename or root), 0, f"it cannot be read: {error.strerror}")


def _checkpoint(root: Path, newest_ms: int, add: Add) -> None:
    path = root / "checkpoint"
    if not path.exists():
        if newest_ms:
            add(Kind.CHECKPOINT, path, 0, "it is missing, but the log has records")
        return
    data = path.read_bytes()
    if len(data) != CHECKPOINT_BYTES:
        add(Kind.CHECKPOINT, path, 0, f"it has {len(data)} bytes, not {CHECKPOINT_BYTES}")
    if len(data) < NUMBERS.size:
        return
    physic_ms, logics_ms, index_ms, _, _, _ = NUMBERS.unpack_from(data)
    for number, (name, flushed_ms) in enumerate(
        (("log", physic_ms), ("queues", logics_ms), ("index", index_ms))
    ):
        if flushed_ms < 0 or (newest_ms and flushed_ms > newest_ms):
            text = (
                f"its flush time of the {name} is {flushed_ms} ms, but the newest record is of {newest_ms} ms"
            )
            add(Kind.CHECKPOINT, path, 8 * number, text)


def _epochs(root: Path, add: Add) -> None:
    """The epochs of a pair, Apache's or ours, and `.bak`."""
    for path in (root / EPOCHS, root / f"{EPOCHS}.bak"):
        if not path.exists():
            continue
        try:
            decoded(path.read_bytes())
        except ValueError as error:
            add(Kind.CONFIG, path, 0, f"it is damaged: {error}")


# ---- config ----


def _config(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "config"
    if not folder.is_dir():
        notes.append("there is no config folder: topics, groups and offsets are unknown")
        return
    names = {path.name.removesuffix(".bak") for path in folder.iterdir() if path.is_file()}
    for name in sorted(names):
        if name.endswith(".json") or name in CONFIG_OTHERS:
            _config_file(folder / name, add, notes)


def _config_file(path: Path, add: Add, notes: list[str]) -> None:
    """Check a file and its `.bak`. An empty file counts as missing, as for both brokers."""
    backup = Path(f"{path}.bak")
    main_fault, backup_fault = config_fault(path), config_fault(backup)
    if main_fault is None and backup_fault is None:
        notes.append(f"{path.name} is empty")
    elif main_fault is None and not backup_fault:
        notes.append(f"{path.name} is missing or empty; its .bak is used")
    elif main_fault is None:
        add(Kind.CONFIG, backup, 0, f"{path.name} is missing, and its .bak is damaged: {backup_fault}")
    elif main_fault and backup_fault == "":
        add(Kind.CONFIG, path, 0, f"it is damaged; its .bak is used: {main_fault}")
    elif main_fault:
        add(Kind.CONFIG, path, 0, f"it is damaged, and there is no valid .bak: {main_fault}")
    elif backup_fault:
        add(Kind.CONFIG, backup, 0, f"it is damaged and could not replace {path.name}: {backup_fault}")


def config_fault(path: Path) -> str | None:
    """What is wrong with a config file, "" if nothing; None if it is missing or empty. Raises OSError."""
    data = path.read_bytes() if path.exists() else b""
    if not data.strip():
        return None
    try:
        value = fastjson.loads(data)
    except fastjson.JsonError as error:
        return str(error)
    if not isinstance(value, dict | list):
        return "it contains no JSON object"
    for member in TABLES.get(path.name.removesuffix(".bak"), ()):
        if not isinstance(value, dict) or not isinstance(value.get(member, {}), dict):
            return f"its {member} is not a JSON object"
    return ""


# ---- journal ----


def _journal(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "journal"
    if not folder.is_dir():
        return
    abort = root / "abort"
    run_id = abort.read_bytes()[:64].decode("ascii", "replace") if abort.exists() else ""
    for path in sorted(folder.iterdir()):
        if path.name == SPARE:
            continue
        if not JOURNAL_NAME.fullmatch(path.name):
            add(Kind.JOURNAL, path, 0, "it is not a journal file")
        elif run_id and not path.name.startswith(f"{run_id}."):
            notes.append(
                f"journal/{path.name} is of an earlier broker process: the next start deletes it unread"
            )
        else:
            _journal_file(path, add)


def _journal_file(path: Path, add: Add) -> None:
    data = path.read_bytes()
    end = 0
    for _ in entries_of(data):
        end += HEAD.size + HEAD.unpack_from(data, end)[2]
    rest = data[end:].rstrip(b"\0")
    if rest:
        add(Kind.JOURNAL, path, end, f"{len(rest)} bytes after the last valid entry are not an entry")


FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
DIGITS_MAX = 10


def group_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """(Group, topic) → queue → next offset to consume; the newer of two files counts.

    Raises StoreUnreadable.
    """
    paths = [Path(root, "config", name) for name in FILES]
    found: dict[tuple[str, str], dict[int, int]] = {}
    for path in sorted(paths, key=_changed_ns):
        whole = read_object(path)
        for key, queues in _member(whole, "offsetTable").items():
            topic, separator, group = str(key).partition("@")
            if separator and isinstance(queues, dict):
                found[group, topic] = {
                    int(queue): at for queue, at in queues.items() if _is_offset(queue, at)
                }
        for key, at in _member(whole, "lmqOffsetTable").items():
            topic, separator, group = str(key).partition("@")
            if separator and type(at) is int:
                found[group, topic] = {0: at}
    return found


def read_object(path: Path) -> Mapping[Any, Any]:
    """The object in a config file, or in its `.bak`; empty if both are missing. Raises StoreUnreadable."""
    fault = ""
    for each in (path, Path(f"{path}.bak")):
        try:
            value = fastjson.loads(each.read_bytes() or b"{}") if each.exists() else None
        except OSError as error:
            raise StoreUnreadable(f"{each} cannot be read: {error.strerror}") from None
        except fastjson.JsonError as error:
            fault = fault or f"{each} cannot be read: {error}"
            continue
        if isinstance(value, dict) and (value or each != path):
            return value
    if fault:
        raise StoreUnreadable(fault)
    return {}


def _member(whole: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    member = whole.get(name)
    return member if isinstance(member, dict) else {}


def _is_offset(queue: object, at: object) -> bool:
    text = str(queue)
    return text.isdecimal() and len(text) <= DIGITS_MAX and type(at) is int


def _changed_ns(path: Path) -> int:
    return os.stat(path).st_mtime_ns if path.exists() else 0


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
            group_offsets,
            check_crc=checks.crc,
            with_index=checks.index,
            delays_s=checks.delays_s,
            index_slots=checks.index_slots,
        ).run()
    newest_ms = max((last for _, last in seen.counts.times.values()), default=0)
    check_small_files(root, 0 if store.is_running() else newest_ms, seen.findings, seen.state)
    check_timer_files(root, seen.findings, seen.state)
    return VerifyResult(seen, seen.numbers["log_bytes"], time.monotonic() - began)
