"""The trace that `firearrow store backup` leaves in a store: when its last backup was made, and where.

It is a small JSON file beside Apache's in the store's folder `config`, of a name that Apache does not have. Its
reader gets None if there is none, or if it is damaged. Any thread.
"""

from pathlib import Path
from typing import NamedTuple

import orjson

from firearrow._native.base.durable_files import replace_durably

NAME = "lastBackup.json"
BYTES_MAX = 64 << 10


class LastBackup(NamedTuple):
    """`made_ms`: since 1970. `target`: the folder of the backup, as it was named then. `log_end`: what it contains."""

    made_ms: int
    target: str
    log_end: int


def read(store: str) -> LastBackup | None:
    """The last backup of a store that is known."""
    try:
        with _path(store).open("rb") as file:
            found = orjson.loads(file.read(BYTES_MAX))
        made_ms, target, log_end = found["madeMs"], found["target"], found["logEnd"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if type(made_ms) is not int or type(log_end) is not int or not isinstance(target, str):
        return None
    return LastBackup(made_ms, target, log_end)


def write(store: str, made: LastBackup) -> None:
    """Replace the trace. OSError: the store is on a disk that is full or cannot be written."""
    members = {"madeMs": made.made_ms, "target": made.target, "logEnd": made.log_end}
    replace_durably(str(_path(store)), orjson.dumps(members, option=orjson.OPT_APPEND_NEWLINE))


def _path(store: str) -> Path:
    return Path(store, "config", NAME)
