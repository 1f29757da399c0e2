"""The small files of a store looked at: checkpoint, config, journal. Reads only; findings, never an error of theirs."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from firearrow._native.audit.findings import Finding, Findings, Kind
from firearrow._native.store.log.checkpoint import FILE_BYTES as CHECKPOINT_BYTES
from firearrow._native.store.log.checkpoint import NUMBERS
from firearrow.broker.append.progress_journal import HEAD, SPARE, entries_of
from firearrow.broker.base import fastjson

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
