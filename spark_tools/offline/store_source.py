"""StoreSource: store folders as a place to read from. Travels by pickle; every worker must see the folders."""

import os
from dataclasses import dataclass

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.offline.reader import OfflineReader


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Each path is a folder, or `NAME=FOLDER`: NAME is the broker name of its queues, else the folder's own name.

    InvalidOption: no path, no name, or two stores of one name.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        named = [_named(path) for path in self.paths]
        if not named:
            raise InvalidOption("path: name at least one store folder")
        names = [name for name, _ in named]
        for name in names:
            if names.count(name) > 1:
                raise InvalidOption(f"path: two stores are called {name!r}: name them, as NAME=FOLDER")
        object.__setattr__(self, "paths", tuple(f"{name}={folder}" for name, folder in named))

    def open(self) -> OfflineReader:
        """StoreUnreadable."""
        return OfflineReader(_named(path) for path in self.paths)

    def __str__(self) -> str:
        return ", ".join(_named(path)[1] for path in self.paths)


def _named(path: str) -> tuple[str, str]:
    """Name and absolute folder. What stands before `=` is a name unless it has a slash."""
    name, mark, folder = path.partition("=")
    if not mark or os.sep in name:
        name, folder = "", path
    if not folder:
        raise InvalidOption(f"path: {path!r} names no folder")
    folder = os.path.abspath(folder)
    name = name or os.path.basename(folder)
    if not name or "=" in name:
        raise InvalidOption(f"path: {folder} has no name that can be a broker's: write NAME={folder}")
    return name, folder
