"""Verification: one store looked at whole, from its log to its smallest file. Writes nothing.

Log, queues, index and groups are the audit's, over processes; the small files are ours. The caller's thread.

The small files of a store looked at: checkpoint, config, journal. Reads only; findings, never an error of theirs.

How far the groups of a store are, by its config files. Reads only; any thread.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from firearrow._native.audit.audit import StoreAudit, StoreResult
from firearrow._native.audit.findings import Finding, Findings, Kind
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.checks.log_records import APACHE_DELAYS_S
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.checkpoint import FILE_BYTES as CHECKPOINT_BYTES
from firearrow._native.store.log.checkpoint import NUMBERS
from firearrow.broker.append.progress_journal import HEAD, SPARE, entries_of
from firearrow.broker.base import fastjson
from firearrow.broker.maintenance.lock import check_folder
from firearrow.broker.maintenance.process_pool import ProcessExecutor
from firearrow.broker.maintenance.verify_timers import check_timer_files

CONFIG_OTHERS = ("timermetrics", "transactionMetrics", "consumerOrderInfo")
TABLES = {
    "topics.json": ("topicConfigTable",),
    "subscriptionGroup.json": ("subscriptionGroupTable",),
    "consumerOffset.json": ("offsetTable",),
    "lmqConsumerOffset.json": ("offsetTable",),
    "delayOffset.json": ("offsetTable",),
}
"""The object that each of them must hold."""
JOURNAL_NAME = re.compile(r".+\.\d{10}")
Add = Callable[[Kind, Path, int, str], None]


def check_small_files(root: str, newest_ms: int, findings: Findings, notes: list[str]) -> None:
    """`newest_ms`: store time of the newest record that the log holds, 0 if it holds none."""

    def add(kind: Kind, path: Path, position: int, text: str) -> None:
        findings.add(Finding(kind, Path(root).name, str(path), position, text))

    folder = Path(root)
    for check in (partial(_checkpoint, folder, newest_ms, add), partial(_config, folder, add, notes),
                  partial(_journal, folder, add, notes)):  # fmt: skip
        try:
            check()
        except OSError as error:
            add(Kind.UNREADABLE, Path(error.filename or root), 0, f"it cannot be read: {error.strerror}")


def _checkpoint(root: Path, newest_ms: int, add: Add) -> None:
    path = root / "checkpoint"
    if not path.exists():
        if newest_ms:
            add(Kind.CHECKPOINT, path, 0, "it is missing, and the log holds records")
        return
    data = path.read_bytes()
    if len(data) != CHECKPOINT_BYTES:
        add(Kind.CHECKPOINT, path, 0, f"it has {len(data)} bytes, not {CHECKPOINT_BYTES}")
    if len(data) < NUMBERS.size:
        return
    physic_ms, logics_ms, index_ms, _, _, _ = NUMBERS.unpack_from(data)
    for number, (name, told_ms) in enumerate(
        (("log", physic_ms), ("queues", logics_ms), ("index", index_ms))
    ):
        if told_ms < 0 or (newest_ms and told_ms > newest_ms):
            text = f"it says that the {name} is on disk up to {told_ms} ms, and the newest record is of {newest_ms} ms"
            add(Kind.CHECKPOINT, path, 8 * number, text)


# ---- config ----


def _config(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "config"
    if not folder.is_dir():
        notes.append("it has no folder config: topics, groups and their offsets are unknown")
        return
    names = {path.name.removesuffix(".bak") for path in folder.iterdir() if path.is_file()}
    for name in sorted(names):
        if name.endswith(".json") or name in CONFIG_OTHERS:
            _config_file(folder / name, add, notes)


def _config_file(path: Path, add: Add, notes: list[str]) -> None:
    """A file and its `.bak`. Empty ones count as missing, as for both brokers."""
    backup = Path(f"{path}.bak")
    main_wrong, backup_wrong = config_fault(path), config_fault(backup)
    if main_wrong is None and backup_wrong is None:
        notes.append(f"{path.name} is empty")
    elif main_wrong is None and not backup_wrong:
        notes.append(f"{path.name} is missing or empty, and its .bak stands in")
    elif main_wrong is None:
        add(Kind.CONFIG, backup, 0, f"{path.name} is missing, and its .bak is damaged: {backup_wrong}")
    elif main_wrong and backup_wrong == "":
        add(Kind.CONFIG, path, 0, f"it is damaged, and its .bak stands in: {main_wrong}")
    elif main_wrong:
        add(Kind.CONFIG, path, 0, f"it is damaged, and there is no good .bak: {main_wrong}")
    elif backup_wrong:
        add(Kind.CONFIG, backup, 0, f"it is damaged, and could not stand in: {backup_wrong}")


def config_fault(path: Path) -> str | None:
    """Why a config file is not what it should be, empty if it is; None if it is not there or empty. OSError."""
    data = path.read_bytes() if path.exists() else b""
    if not data.strip():
        return None
    try:
        value = fastjson.loads(data)
    except fastjson.JsonError as error:
        return str(error)
    if not isinstance(value, dict | list):
        return "it holds no object"
    for member in TABLES.get(path.name.removesuffix(".bak"), ()):
        if not isinstance(value, dict) or not isinstance(value.get(member, {}), dict):
            return f"its {member} is no object"
    return ""


# ---- journal ----


def _journal(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "journal"
    if not folder.is_dir():
        return
    abort = root / "abort"
    run = abort.read_bytes()[:64].decode("ascii", "replace") if abort.exists() else ""
    for path in sorted(folder.iterdir()):
        if path.name == SPARE:
            continue
        if not JOURNAL_NAME.fullmatch(path.name):
            add(Kind.JOURNAL, path, 0, "it is no file of a journal")
        elif run and not path.name.startswith(f"{run}."):
            notes.append(f"journal/{path.name} is of another run: the next start deletes it unread")
        else:
            _journal_file(path, add)


def _journal_file(path: Path, add: Add) -> None:
    data = path.read_bytes()
    end = 0
    for _ in entries_of(data):
        end += HEAD.size + HEAD.unpack_from(data, end)[2]
    behind = data[end:].rstrip(b"\0")
    if behind:
        add(Kind.JOURNAL, path, end, f"{len(behind)} bytes behind the last whole entry are none")


FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
DIGITS_MAX = 10


def group_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """(Group, topic) → queue → the next offset to consume; of two files the newer one counts. StoreUnreadable."""
    paths = [Path(root, "config", name) for name in FILES]
    found: dict[tuple[str, str], dict[int, int]] = {}
    for path in sorted(paths, key=_changed_ns):
        whole = read_object(path)
        for key, queues in _member(whole, "offsetTable").items():
            topic, mark, group = str(key).partition("@")
            if mark and isinstance(queues, dict):
                found[group, topic] = {
                    int(queue): at for queue, at in queues.items() if _is_offset(queue, at)
                }
        for key, at in _member(whole, "lmqOffsetTable").items():
            topic, mark, group = str(key).partition("@")
            if mark and type(at) is int:
                found[group, topic] = {0: at}
    return found


def read_object(path: Path) -> Mapping[Any, Any]:
    """The object in a config file, or in its `.bak`; empty if there is neither. StoreUnreadable."""
    wrong = ""
    for each in (path, Path(f"{path}.bak")):
        try:
            value = fastjson.loads(each.read_bytes() or b"{}") if each.exists() else None
        except OSError as error:
            raise StoreUnreadable(f"{each} cannot be read: {error.strerror}") from None
        except fastjson.JsonError as error:
            wrong = wrong or f"{each} cannot be read: {error}"
            continue
        if isinstance(value, dict) and (value or each != path):
            return value
    if wrong:
        raise StoreUnreadable(wrong)
    return {}


def _member(whole: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _is_offset(queue: object, at: object) -> bool:
    text = str(queue)
    return text.isdecimal() and len(text) <= DIGITS_MAX and type(at) is int


def _changed_ns(path: Path) -> int:
    return os.stat(path).st_mtime_ns if path.exists() else 0


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
