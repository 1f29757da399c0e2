"""What of a store says how far work has come, copied so that its parts agree: config, timer, checkpoint, journal.

A broker replaces its config files every few seconds and deletes the journal before them, so that a copy made meanwhile
could lack both: it is made again until nothing changed below it. Writes into the target only; one thread.
"""

import os
import shutil
from pathlib import Path

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.files.recycled_segment import NAME as SPARE
from firearrow.broker.append.progress_journal import HEAD, entries_of
from firearrow.broker.upkeep.copying import copy_file
from firearrow.broker.upkeep.manifest import NAME, Stamp, stamp_of

TRIES = 50
FOLDERS = ("config", "timerlog", "journal")
APART = frozenset(("commitlog", "consumequeue", "index", "lock", SPARE, NAME, *FOLDERS))
HOT = frozenset(("timercheck", "timermetrics"))
"""Written in place all the time, and whole at every moment."""


def copy_progress(source: Path, target: Path, *, live: bool) -> int:
    """Everything but log, queues and index; bytes. StoreUnreadable: it changed again and again."""
    for _ in range(TRIES):
        before = _stamps(source)
        copied = _copy_all(source, target)
        if not live or before == _stamps(source):
            if live:
                _end_journals(target / "journal")
            return copied
        for name in FOLDERS:
            shutil.rmtree(target / name, ignore_errors=True)
        for path in target.iterdir():
            if path.name != NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    raise StoreUnreadable(f"{source / 'config'} changed each of {TRIES} times that it was copied: try again")


def copy_tree(source: Path, target: Path) -> int:
    """Regular files below; bytes. What goes away meanwhile is left out. OSError."""
    copied = 0
    for folder, folders, names in os.walk(source):
        here = target / os.path.relpath(folder, source)
        here.mkdir(parents=True, exist_ok=True)
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                copied += copy_file(path, str(here / name), lambda _: None) or 0
    return copied


def _copy_all(source: Path, target: Path) -> int:
    """Config with the timer's check first, then the wheel, then what both speak of."""
    copied = copy_tree(source / "config", target / "config") if (source / "config").is_dir() else 0
    for path in sorted(source.iterdir(), key=lambda each: each.name != "timerwheel"):
        if path.name in APART or path.name.startswith("removed-") or path.name == "damaged":
            continue
        if path.is_dir():
            copied += copy_tree(path, target / path.name)
        elif path.is_file():
            copied += copy_file(str(path), str(target / path.name), lambda _: None) or 0
    for name in FOLDERS[1:]:
        if (source / name).is_dir():
            copied += copy_tree(source / name, target / name)
    return copied


def _stamps(source: Path) -> dict[str, Stamp | None]:
    """What tells that a file was replaced, of config; and which files the journal has."""
    found: dict[str, Stamp | None] = {"abort": stamp_of(str(source / "abort"))}
    config, journal = source / "config", source / "journal"
    for path in config.iterdir() if config.is_dir() else ():
        if path.name not in HOT and not path.name.endswith(".tmp"):
            found[path.name] = stamp_of(str(path))
    for path in journal.iterdir() if journal.is_dir() else ():
        found[f"journal/{path.name}"] = None
    return found


def _end_journals(folder: Path) -> None:
    """An entry that was being noted is half there: nothing may stand behind the last whole one."""
    for path in folder.iterdir() if folder.is_dir() else ():
        data = path.read_bytes()
        end = 0
        for _ in entries_of(data):
            end += HEAD.size + HEAD.unpack_from(data, end)[2]
        with path.open("r+b") as file:
            file.truncate(end)
            file.truncate(len(data))
