"""Manifest: the paper of a backup, `backup.json` in its folder: what was copied from where, which files never change.

Both brokers pass the file over. Written whole. Any thread.
"""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from firearrow._native.store.files.errors import StoreUnreadable

NAME = "backup.json"
FORMAT = 1
BYTES_MAX = 64 << 20
Stamp = tuple[int, int, int, int]
"""Device, inode, size and time of change (ns): equal ones are the same bytes, if nobody writes the file any more."""


@dataclass(slots=True)
class Manifest:
    """`sealed`: name of each full log file → what it was at the source. Bytes: `linked` to the source, `kept` from the
    backup before, `copied`."""

    source: str
    live: bool
    made: str
    log_start: int = 0
    log_end: int = 0
    linked: int = 0
    kept: int = 0
    copied: int = 0
    sealed: dict[str, Stamp] = field(default_factory=dict)
    format: int = FORMAT

    @staticmethod
    def of(folder: Path) -> "Manifest | None":
        """None: there is none. StoreUnreadable: it is none of ours, or damaged."""
        path = folder / NAME
        try:
            if path.stat().st_size > BYTES_MAX:
                raise ValueError("too large")
            told = orjson.loads(path.read_bytes())
            sealed = {str(name): _stamp(value) for name, value in told.pop("sealed").items()}
            manifest = Manifest(**told, sealed=sealed)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreUnreadable(f"{path} is no paper of a backup: {error}; name a new folder") from None
        if manifest.format != FORMAT:
            raise StoreUnreadable(f"{path} has format {manifest.format}, not {FORMAT}: name a new folder")
        return manifest

    def write(self, folder: Path) -> None:
        """On disk when it returns. OSError."""
        path = folder / NAME
        fresh = path.with_suffix(".tmp")
        with fresh.open("wb") as file:
            file.write(orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def stamp_of(path: str) -> Stamp | None:
    """None: it is gone."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _stamp(value: object) -> Stamp:
    if not isinstance(value, list) or len(value) != 4 or not all(type(each) is int for each in value):
        raise ValueError("a file's stamp is four numbers")
    device, inode, size, changed_ns = value
    return device, inode, size, changed_ns
