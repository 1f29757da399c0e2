"""StoreSource: the source made of store folders. Picklable; every worker must be able to read the folders."""

import os
from dataclasses import dataclass

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.offline.reader import OfflineReader


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Each path is a folder or `NAME=FOLDER`; NAME is the broker name of its queues, by default the
    folder's name.

    InvalidOption: no path, no name, or two stores with the same name.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        named = [_named(path) for path in self.paths]
        if not named:
            raise InvalidOption("path: give at least one store folder")
        names = [name for name, _ in named]
        for name in names:
            if names.count(name) > 1:
                raise InvalidOption(f"path: two stores are named {name!r}: give them names, as NAME=FOLDER")
        object.__setattr__(self, "paths", tuple(f"{name}={folder}" for name, folder in named))

    def open(self) -> OfflineReader:
        """StoreUnreadable."""
        return OfflineReader(_named(path) for path in self.paths)

    def __str__(self) -> str:
        return ", ".join(_named(path)[1] for path in self.paths)


def _named(path: str) -> tuple[str, str]:
    """Name and absolute folder. The text before `=` is a name unless it has a slash."""
    name, equals, folder = path.partition("=")
    if not equals or os.sep in name:
        name, folder = "", path
    if not folder:
        raise InvalidOption(f"path: {path!r} has no folder")
    folder = os.path.abspath(folder)
    name = name or os.path.basename(folder)
    if not name or "=" in name:
        raise InvalidOption(f"path: the name of {folder} cannot be a broker name: write NAME={folder}")
    return name, folder
