"""Removed: what a repair takes away or changes, kept in the store's folder under `removed-<time>`, by its path there.

Both brokers pass such a folder over. Owner: one repair, in one thread.
"""

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from firearrow.broker.maintenance.backup_copy import copy_file, copy_tree, sync_path, sync_tree

PREFIX = "removed-"


class Quarantine:
    """`root`: of the store. The folder is made with the first thing that is kept. OSError: nothing was taken away."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = root / f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z"
        self.kept: list[str] = []

    def move(self, path: Path) -> None:
        """A file or folder out of the store."""
        place = self._free_path(path)
        path.rename(place)
        sync_path(str(place.parent))
        sync_path(str(path.parent))

    def copy(self, path: Path) -> Path:
        """A file or folder that is about to be changed; where it is kept."""
        place = self._free_path(path)
        if path.is_dir():
            copy_tree(path, place)
            sync_tree(str(place))
        else:
            copy_file(str(path), str(place), lambda _: None)
            sync_path(str(place))
        return place

    def copy_from(self, path: Path, position: int) -> None:
        """What a log file holds from there on, in a file of the same size."""
        place = self.copy(path)
        with place.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            _punch(file.fileno(), position)
            file.truncate(size)
            os.fsync(file.fileno())

    def _free_path(self, path: Path) -> Path:
        place = self.folder / path.relative_to(self._root)
        place.parent.mkdir(parents=True, exist_ok=True)
        for number in count(2):  # what is changed twice is kept twice
            if not place.exists():
                break
            place = place.with_name(f"{path.name}.{number}")
        self.kept.append(str(path.relative_to(self._root)))
        return place


def _punch(fd: int, end: int) -> None:
    """Zeros below `end`."""
    zeros, at = bytes(1 << 20), 0
    while at < end:
        at += os.pwrite(fd, zeros[: min(len(zeros), end - at)], at)
