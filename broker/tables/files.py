"""ConfigFile: one of Apache's `config/*.json`, replaced whole, with the state before it in `.bak`.

Knows no content. A damaged file never keeps the broker from starting: it is set aside as `.damaged-N`, and said. Any
one thread at a time.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.files.directory_sync import fsync_dir, make_dirs
from firearrow.broker.base.errors import StartError

log = logging.getLogger("firearrow.files")

BYTES_MAX = 512 << 20
"""Nothing that is larger is one of these files."""
MISSING = "is missing"


def set_aside(path: Path) -> str:
    """Rename it to NAME.damaged-N; the name that it has now. OSError."""
    number = 1
    while (place := Path(f"{path}.damaged-{number}")).exists():
        number += 1
    path.replace(place)
    return place.name


class ConfigFile:
    """`is_older`: what was loaded is not what was written last, or nothing was left to load."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._backup = Path(f"{self.path}.bak")
        self.is_older = False

    def load(self, load_text: Callable[[bytes], None]) -> bool:
        """Give `load_text` the file's text, or `.bak`'s if the file is missing, empty or refused by a ValueError.

        False when there is nothing to load, or nothing that can be. StartError when a file may not be read.
        """
        fault = self._fault(self.path, load_text)
        if fault is None:
            return True
        spare = self._fault(self._backup, load_text)
        self.is_older = fault != MISSING or spare != MISSING
        if not self.is_older:
            return False
        kept = [self._set_aside(path, why) for path, why in ((self.path, fault), (self._backup, spare))]
        beside = f"; kept as {', '.join(name for name in kept if name)}" if any(kept) else ""
        if spare is None:
            log.error(
                "%s %s: %s, the state before it, is taken%s", self.path, fault, self._backup.name, beside
            )
            return True
        log.error(
            "%s %s, and %s %s: the broker starts without what they held%s",
            self.path,
            fault,
            self._backup.name,
            spare,
            beside,
        )
        return False

    def write(self, text: bytes) -> None:
        """On disk when it returns; a crash leaves a whole file, the old one or the new one. OSError."""
        make_dirs(str(self.path.parent.absolute()))
        fresh = Path(f"{self.path}.tmp")
        with fresh.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            spare = Path(f"{self._backup}.tmp")
            spare.unlink(missing_ok=True)
            os.link(self.path, spare)
            spare.replace(self._backup)
        fresh.replace(self.path)
        fsync_dir(str(self.path.parent))

    def _fault(self, path: Path, load_text: Callable[[bytes], None]) -> str | None:
        """Why it cannot be taken; None if it was."""
        try:
            if path.stat().st_size > BYTES_MAX:
                return f"is larger than {BYTES_MAX >> 20} MiB"
            text = path.read_bytes()
        except FileNotFoundError:
            return MISSING
        except OSError as error:
            raise StartError(
                f"{path} cannot be read ({error.strerror}): give the broker access to it."
            ) from error
        if not text:
            return "is empty"
        try:
            load_text(text)
        except (ValueError, RecursionError) as error:
            return f"is damaged ({error})"
        return None

    def _set_aside(self, path: Path, fault: str | None) -> str | None:
        """The name that it has now; None if it stays, or there is nothing to keep."""
        if fault is None or fault == MISSING:
            return None
        return set_aside(path)
