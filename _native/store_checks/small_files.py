"""Checks a store's small files: config files with their `.bak`, the checkpoint, the progress journal. Reads only."""

import os
import re
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from firearrow._native.offline.config_tables import document
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.protocol.fastjson import JsonError
from firearrow._native.store.log.checkpoint import FILE_BYTES, NUMBERS
from firearrow._native.store.log.journal_entries import SPARE, end_of
from firearrow._native.store_checks.findings import Add, Extent, Kind, StoreFinding

OTHERS = ("timermetrics", "transactionMetrics", "consumerOrderInfo")
"""Config files without the suffix `.json`."""
TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}
"""Config file → the member that must be an object."""
JOURNAL_NAME = re.compile(r".+\.\d{10}")
RUN_BYTES_MAX = 64


class State(Enum):
    """MISSING: or empty, which is the same for both brokers."""

    MISSING = auto()
    VALID = auto()
    DAMAGED = auto()


class ConfigState(NamedTuple):
    """`fault`: what is wrong with a damaged file."""

    state: State
    fault: str = ""


def config_state(path: Path) -> ConfigState:
    """OSError."""
    try:
        value = document(path)
    except JsonError as error:
        return ConfigState(State.DAMAGED, str(error))
    if value is None:
        return ConfigState(State.MISSING)
    if not isinstance(value, dict | list):
        return ConfigState(State.DAMAGED, "it contains no JSON object")
    table = TABLES.get(path.name.removesuffix(".bak"))
    if table is not None and not (isinstance(value, dict) and isinstance(value.get(table, {}), dict)):
        return ConfigState(State.DAMAGED, f"its {table} is not a JSON object")
    return ConfigState(State.VALID)


def check_config_files(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "config"
    if not folder.is_dir():
        notes.append("there is no config folder: topics, groups and offsets are unknown")
        return
    names = {path.name.removesuffix(".bak") for path in folder.iterdir() if path.is_file()}
    for name in sorted(names):
        if name.endswith(".json") or name in OTHERS:
            _check(folder / name, add, notes)


def _check(path: Path, add: Add, notes: list[str]) -> None:
    backup = Path(f"{path}.bak")
    (state, fault), (backup_state, backup_fault) = config_state(path), config_state(backup)
    match state, backup_state:
        case State.MISSING, State.MISSING:
            notes.append(f"{path.name} is empty")
        case State.MISSING, State.VALID:
            notes.append(f"{path.name} is missing or empty; its .bak is used")
        case State.MISSING, State.DAMAGED:
            add(Kind.CONFIG, backup, 0, f"{path.name} is missing, and its .bak is damaged: {backup_fault}")
        case State.DAMAGED, State.VALID:
            add(Kind.CONFIG, path, 0, f"it is damaged; its .bak is used: {fault}")
        case State.DAMAGED, _:
            add(Kind.CONFIG, path, 0, f"it is damaged, and there is no valid .bak: {fault}")
        case State.VALID, State.DAMAGED:
            text = f"it is damaged and could not replace {path.name}: {backup_fault}"
            add(Kind.CONFIG, backup, 0, text)


def unusable_config_files(store: StoreFolder) -> Iterator[StoreFinding]:
    """The JSON files that a broker or a reader cannot use as they are, without a look at their `.bak`."""
    folder = store.path("config")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in (os.path.join(folder, name) for name in names if name.endswith(".json")):
        try:
            value = document(Path(path))
        except JsonError as error:
            why = f"it cannot be read: {error}"
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
        else:
            why = "it is empty" if value is None else "it is not a JSON object"
            if isinstance(value, dict):
                continue
        yield Kind.CONFIG.finding(Extent(store.name, path, 0), why)
    if "topics.json" not in names and store.has_queues():
        where = Extent(store.name, os.path.join(folder, "topics.json"), 0)
        yield Kind.CONFIG.finding(where, "it is missing, but there are queues")


# ---- progress ----


def check_checkpoint(root: Path, newest_ms: int, add: Add) -> None:
    """`newest_ms`: store time of the newest record in the log, 0 if the log is empty."""
    path = root / "checkpoint"
    if not path.exists():
        if newest_ms:
            add(Kind.CHECKPOINT, path, 0, "it is missing, but the log has records")
        return
    data = path.read_bytes()
    if len(data) != FILE_BYTES:
        add(Kind.CHECKPOINT, path, 0, f"it has {len(data)} bytes, not {FILE_BYTES}")
    if len(data) < NUMBERS.size:
        return
    flushed = zip(("log", "queues", "index"), NUMBERS.unpack_from(data), strict=False)
    for number, (name, flushed_ms) in enumerate(flushed):
        if flushed_ms < 0 or (newest_ms and flushed_ms > newest_ms):
            text = (
                f"its flush time of the {name} is {flushed_ms} ms, but the newest record is of {newest_ms} ms"
            )
            add(Kind.CHECKPOINT, path, 8 * number, text)


def check_journal(root: Path, add: Add, notes: list[str]) -> None:
    folder = root / "journal"
    if not folder.is_dir():
        return
    abort = root / "abort"
    run_id = abort.read_bytes()[:RUN_BYTES_MAX].decode("ascii", "replace") if abort.exists() else ""
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
            data = path.read_bytes()
            end = end_of(data)
            if rest := data[end:].rstrip(b"\0"):
                text = f"{len(rest)} bytes after the last valid entry are not an entry"
                add(Kind.JOURNAL, path, end, text)
