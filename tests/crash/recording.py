"""Recording: a workload run in a separate process under the recorder, and the log that it leaves, read back.

The recorded store is the one that is shipped: the loader puts the recorder before libc (recorder.c).
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from tests.preload import preloading

SOURCE = Path(__file__).with_name("recorder.c")
HEAD = struct.Struct("<B3xIqqI")
WORKLOAD_S = 60
REUSING_CALLS = 6


class Kind(IntEnum):
    """The numbers of recorder.c."""

    MARK = 1
    WRITE = 2
    STORE = 3
    SIZE = 4
    ALLOCATE = 5
    SYNC = 6
    SYNC_RANGE = 7
    CREATE = 8
    LINK = 9
    RENAME = 10
    UNLINK = 11
    MKDIR = 12
    RMDIR = 13
    SYNC_FOLDER = 14
    ZERO = 15


class Op(NamedTuple):
    """One entry: `file` is the recorder's number of a file; positions and lengths in bytes; `data` may be names."""

    kind: Kind
    file: int
    at: int
    length: int
    data: bytes

    @property
    def names(self) -> list[str]:
        return [os.fsdecode(name) for name in self.data.split(b"\0")]

    def __str__(self) -> str:
        if self.kind == Kind.MARK or Kind.CREATE <= self.kind <= Kind.SYNC_FOLDER:
            return f"{self.kind.name} {' '.join(self.names)[:200]}"
        return f"{self.kind.name} file {self.file} at {self.at}, {self.length or len(self.data)} bytes"


def build(folder: Path) -> Path:
    """The recorder's library, compiled into `folder`."""
    library = folder / "recorder.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True
    )
    return library


def record(
    library: Path, root: Path, workload: str, seed: int, *, module: str = "tests.crash.workload"
) -> list[Op]:
    """What the workload did to the files below `root`, an empty folder. CalledProcessError if it failed."""
    path = root.with_name(f"{root.name}.log")
    environment = os.environ | preloading(library) | {"CRASH_ROOT": str(root), "CRASH_LOG": str(path)}
    command = [sys.executable, "-m", module, workload, str(root), str(seed)]
    try:
        subprocess.run(command, env=environment, check=True, timeout=WORKLOAD_S)
        return list(read(path.read_bytes()))
    finally:
        path.unlink(missing_ok=True)


def reused(ops: list[Op]) -> int:
    """How often a segment of the log was recycled as another one."""
    return sum(op.kind == Kind.RENAME and op.names[0] == "spare" for op in ops)


def reusing(ops: list[Op]) -> frozenset[int]:
    """The calls by which a segment leaves the log, is zeroed, and is used again."""
    moved = [n for n, op in enumerate(ops) if op.kind == Kind.RENAME and "spare" in op.names]
    return frozenset(n + step for n in moved for step in range(REUSING_CALLS))


def read(log: bytes) -> Iterator[Op]:
    at = 0
    while at < len(log):
        kind, file, position, length, size = HEAD.unpack_from(log, at)
        at += HEAD.size
        yield Op(Kind(kind), file, position, length, log[at : at + size])
        at += size
