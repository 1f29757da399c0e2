"""Builds native/loops.pyx when it or a native header is newer, and declares its functions."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Protocol, cast

from bench.programs import CACHE, INCLUDE, NATIVE, ROOT
from firearrow._native.store.store_reader import StoreReader

SOURCE = NATIVE / "loops.pyx"
DIRECTIVES = ("-X", "boundscheck=False", "-X", "cdivision=True", "-X", "initializedcheck=False")


class StoreParts(Protocol):
    """See native/loops.pyx."""

    def append(self, record: bytes, times: int) -> int: ...
    def put(self, times: int) -> int: ...
    def slice(self, times: int) -> int: ...
    def index_put(self, times: int) -> None: ...
    def pull(self, codes: list[int], times: int, copy: bool) -> tuple[int, int]: ...


class Loops(Protocol):
    def frames(self, window: bytes) -> int: ...
    def headers(self, text: bytes, serializer: int, times: int) -> int: ...
    def encode(self, topic: bytes, properties: bytes, host: bytes, body: bytes, times: int) -> bytes: ...
    def check(self, record: bytes, times: int) -> int: ...
    def key_hashes(self, topic: bytes, properties: bytes, times: int) -> list[int]: ...
    def crc(self, body: bytes, way: int, times: int) -> int: ...
    def Parts(self, reader: StoreReader, topic: str, queue_id: int) -> StoreParts: ...


def loops() -> Loops:
    """The built module. RuntimeError: there is no C compiler or Cython, or they failed."""
    built = CACHE / "loops.so"
    newest = max(path.stat().st_mtime for path in (SOURCE, *(ROOT / "_native").rglob("*.pxd")))
    if not built.exists() or built.stat().st_mtime < newest:
        _build(built)
    found = importlib.util.spec_from_file_location("loops", built)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return cast(Loops, module)


def _build(built: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    c_text, shape = CACHE / "loops.c", ROOT / "build" / "shape"
    include = [f"-I{sysconfig.get_paths()['include']}", f"-I{INCLUDE}"]
    cython = [
        sys.executable,
        "-m",
        "cython",
        "-3",
        *DIRECTIVES,
        "-I",
        str(shape),
        str(SOURCE),
        "-o",
        str(c_text),
    ]
    compiler = ["cc", "-O2", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", *include]
    try:
        for command in (cython, [*compiler, str(c_text), "-o", str(built)]):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"loops.pyx cannot be built:\n{error.stderr[-2000:]}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"loops.pyx needs Cython and a C compiler: {error}") from None
