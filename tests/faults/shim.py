"""Shim: faults for one broker process, by a library that is preloaded into it (shim.c) and reads a mapped file.

Compiled once per test run. The owner sets rules while the broker runs; they apply at once. One thread.
"""

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from enum import IntEnum
from functools import cache
from pathlib import Path

import pytest

from tests.preload import preloading

HEADER = struct.Struct("<qq48x")
RULE = struct.Struct("<iiqqq224s")
RULES_MAX = 8
FAILED_AT = 24
NO_END = -1
BUILT = tempfile.TemporaryDirectory(prefix="firearrow-shim-")
"""Gone with the process."""


class Call(IntEnum):
    """What can fail. CREATE: an open that would create the file; OPEN: any other one, too."""

    OPEN = 1
    CREATE = 2
    WRITE = 3
    SYNC = 4
    MSYNC = 5
    TRUNCATE = 6
    RENAME = 7
    ALLOCATE = 8


class Shim:
    """`environment` is for the process; `fail` sets a rule, `heal` removes all, `set_clock` moves its wall clock."""

    def __init__(self, folder: Path) -> None:
        path = folder / "faults"
        path.write_bytes(bytes(HEADER.size + RULE.size * RULES_MAX))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._rules = 0
        self.environment = preloading(library()) | {"FIREARROW_FAULTS": str(path)}

    def fail(self, call: Call, error: int, path: str = "", *, passes: int = 0, times: int = NO_END) -> int:
        """Make `call` fail with errno `error` on paths that contain `path`, after `passes` successes; its number."""
        number = self._rules
        if number == RULES_MAX:
            raise ValueError(f"at most {RULES_MAX} rules at a time: heal first")
        RULE.pack_into(self._map, self._at(number), call, error, passes, times, 0, os.fsencode(path))
        self._rules = number + 1
        self._set_rule_count(self._rules)
        return number

    def slow(self, call: Call, ms: int, path: str = "", *, times: int = NO_END) -> int:
        """Delay `call` by `ms`; returns the rule's number."""
        return self.fail(call, -ms, path, times=times)

    def heal(self) -> None:
        self._rules = 0
        self._set_rule_count(0)

    def failures(self, number: int) -> int:
        """How often the rule was applied."""
        count: int = struct.unpack_from("<q", self._map, self._at(number) + FAILED_AT)[0]
        return count

    def set_clock(self, by_s: float) -> None:
        """The wall clock, relative to the real time."""
        struct.pack_into("<q", self._map, 0, int(by_s * 1_000_000_000))

    def _at(self, number: int) -> int:
        return HEADER.size + number * RULE.size

    def _set_rule_count(self, count: int) -> None:
        """One store of eight bytes: the other process never sees half a number."""
        ctypes.c_int64.from_buffer(self._map, 8).value = count


@cache
def library() -> Path:
    """The compiled shim; the test is skipped if there is no C compiler or the system is not Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or os.uname().sysname != "Linux":
        pytest.skip("needs Linux and a C compiler for the preloaded faults")
    built = Path(BUILT.name) / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(
        [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True
    )
    return built
