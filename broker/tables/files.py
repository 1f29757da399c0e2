"""ConfigFile: one of Apache's `config/*.json`, replaced whole, with the state before it in `.bak`.

Knows no content. Any one thread at a time.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.names import make_folder, sync_folder
from firearrow.broker.errors import StartError

log = logging.getLogger("firearrow.files")


class ConfigFile:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._backup = Path(f"{self.path}.bak")
        self._damaged = Path(f"{self.path}.damaged")

    def load(self, take: Callable[[bytes], None]) -> bool:
        """Give `take` the file's text, or `.bak`'s if the file is missing, empty or refused by a ValueError.

        False when there is nothing to load. A refused file is set aside as `.damaged`. StartError when a file
        is damaged and no `.bak` can stand in.
        """
        main = self._read(self.path)
        if main is not None:
            error = self._refused(take, main)
            if error is None:
                return True
            log.error("%s is damaged (%s), loading %s", self.path, error, self._backup.name)
        backup = self._read(self._backup)
        if backup is None and main is None:
            return False
        error = "it is missing" if backup is None else self._refused(take, backup)
        if error is not None:
            state = "missing" if main is None else "damaged"
            raise StartError(
                f"{self.path} is {state} and {self._backup.name} cannot stand in for it ({error}):"
                " repair one of them, or move both away to start without what they held."
            )
        if main is not None:
            self.path.replace(self._damaged)
        return True

    def write(self, text: bytes) -> None:
        """On disk when it returns; a crash leaves a whole file, the old one or the new one. OSError."""
        make_folder(str(self.path.parent.absolute()))
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
        sync_folder(str(self.path.parent))

    def _read(self, path: Path) -> bytes | None:
        """None when it is missing or empty."""
        try:
            return path.read_bytes() or None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StartError(
                f"{path} cannot be read ({error.strerror}): give the broker access to it."
            ) from error

    def _refused(self, take: Callable[[bytes], None], text: bytes) -> str | None:
        try:
            take(text)
        except ValueError as error:
            return str(error)
        return None
