"""Keeps the originals of what a repair removes or changes, under `removed-<time>` in the store, by their
paths.

Both brokers ignore such a folder. Used by one repair, in one thread.
"""

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from firearrow.broker.maintenance.backup_copy import copy_file, copy_tree, sync_path, sync_tree

PREFIX = "removed-"


class Quarantine:
    """`root`: the store's folder. The first file that is kept creates the quarantine folder.

    All methods raise OSError, and then nothing was removed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = root / f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z"
        self.kept: list[str] = []

    def move(self, path: Path) -> None:
        """Move a file or folder out of the store."""
        kept_path = self._free_path(path)
        path.rename(kept_path)
        sync_path(str(kept_path.parent))
        sync_path(str(path.parent))

    def copy(self, path: Path) -> Path:
        """Copy a file or folder before it is changed; return the copy's path."""
        kept_path = self._free_path(path)
        if path.is_dir():
            copy_tree(path, kept_path)
            sync_tree(str(kept_path))
        else:
            copy_file(str(path), str(kept_path), lambda _: None)
            sync_path(str(kept_path))
        return kept_path

    def copy_from(self, path: Path, position: int) -> None:
        """Keep the content of a log file from `position` on, in a file of the same size."""
        kept_path = self.copy(path)
        with kept_path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            _zero_before(file.fileno(), position)
            file.truncate(size)
            os.fsync(file.fileno())

    def _free_path(self, path: Path) -> Path:
        kept_path = self.folder / path.relative_to(self._root)
        kept_path.parent.mkdir(parents=True, exist_ok=True)
        for number in count(2):  # a file that is changed twice is kept twice
            if not kept_path.exists():
                break
            kept_path = kept_path.with_name(f"{path.name}.{number}")
        self.kept.append(str(path.relative_to(self._root)))
        return kept_path


def _zero_before(fd: int, end: int) -> None:
    """Overwrite everything before `end` with zeros."""
    zeros, at = bytes(1 << 20), 0
    while at < end:
        at += os.pwrite(fd, zeros[: min(len(zeros), end - at)], at)
