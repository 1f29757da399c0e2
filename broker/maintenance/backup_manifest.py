"""The manifest of a backup, `backup.json` in its folder: its source, and its full log files, which never
change.

Both brokers ignore the file. It is written atomically. Any thread.
"""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from firearrow._native.base.durable_files import replace_durably
from firearrow._native.store.files.errors import StoreUnreadable

NAME = "backup.json"
FORMAT = 1
BYTES_MAX = 64 << 20
Stamp = tuple[int, int, int, int]
"""Device, inode, size and change time (ns).

Equal stamps mean equal bytes, if the file is no longer written to.
"""


@dataclass(slots=True)
class Manifest:
    """`sealed`: name of each full log file → its stamp at the source. `linked`, `kept`, `copied`: bytes
    linked to the source, linked to the previous backup, copied.
    """

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
        """Read a folder's manifest; None if it has none.

        Raises StoreUnreadable if it is damaged or of another program.
        """
        path = folder / NAME
        try:
            if path.stat().st_size > BYTES_MAX:
                raise ValueError("too large")
            members = orjson.loads(path.read_bytes())
            sealed = {str(name): _stamp(value) for name, value in members.pop("sealed").items()}
            manifest = Manifest(**members, sealed=sealed)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreUnreadable(
                f"{path} is not the manifest of a backup: {error}; give a new folder"
            ) from None
        if manifest.format != FORMAT:
            raise StoreUnreadable(f"{path} has format {manifest.format}, not {FORMAT}: give a new folder")
        return manifest

    def write(self, folder: Path) -> None:
        """Write the manifest durably. Raises OSError."""
        data = orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        replace_durably(str(folder / NAME), data)


def stamp_of(path: str) -> Stamp | None:
    """The stamp of a file; None if it does not exist."""
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
