"""Which worker of pytest-xdist runs which files: a file is run by one, and few of them start a Spark session."""

import zlib
from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling

SESSION_FILES = PurePosixPath("tests/spark/session")
SESSIONS = 2
"""A session takes 30 s of CPU until it is warm."""


class LoadSessionScheduling(LoadFileScheduling):
    """As `--dist loadfile`; the files that need a Spark session are SESSIONS units of work."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(super()._split_scope(nodeid))
        if file.parent == SESSION_FILES:
            return f"{SESSION_FILES} {zlib.crc32(file.name.encode()) % SESSIONS}"
        return str(file)
