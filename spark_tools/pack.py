"""Makes the archive that ships FireArrow to executors: `--archives FILE#firearrow_lib` of spark-submit.

It contains the installed package, its compiled modules without symbols, and the packages that a worker needs
to send, but not numpy, pyarrow and pyspark. It works only with the same platform and Python version. Any
thread.
"""

import gzip
import importlib.util
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firearrow.spark_tools.base.errors import SparkToolsError

FOLDERS = ("_native", "broker", "client", "spark_tools")
CARRIED = ("orjson", "uvloop")
"""Packages that the client imports."""
CARRIED_IF_HERE = ("lz4", "zstandard")
"""Packages that decompress bodies; included if installed."""
COMPILED = (".so", ".dylib")
SUFFIXES = (".tar.gz", ".tgz")
STRIP_S = 60
LIBRARY = "firearrow_lib"
"""The folder where executors find the unpacked archive."""


class PackFailed(SparkToolsError):
    """The archive could not be written, or a package for it is not installed."""


@dataclass(frozen=True, slots=True)
class Packed:
    path: Path
    files: int
    bytes: int
    stripped: bool

    def arguments(self) -> tuple[str, ...]:
        """Arguments of spark-submit that make executors use it."""
        return (
            "--archives",
            f"{self.path}#{LIBRARY}",
            "--conf",
            f"spark.executorEnv.PYTHONPATH={LIBRARY}",
        )


def pack(target: Path) -> Packed:
    """Write the archive (tar, gzip) under a temporary name, then rename it. Same input, same bytes.
    PackFailed."""
    if not target.name.endswith(SUFFIXES):
        raise PackFailed(f"{target}: Spark needs the suffix to unpack it; use {' or '.join(SUFFIXES)}")
    strip = shutil.which("strip")
    files = sorted(_files())
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with (
            temporary.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, source in files:
                _add(archive, name, _content(source, strip))
        temporary.replace(target)
    except OSError as fault:
        raise PackFailed(
            f"{target}: {fault.strerror or fault}; choose another file or free some disk space"
        ) from fault
    finally:
        temporary.unlink(missing_ok=True)
    return Packed(target, len(files), target.stat().st_size, strip is not None)


def _files() -> Iterator[tuple[str, Path]]:
    """(name in the archive, file here)."""
    package = importlib.util.find_spec("firearrow")
    if package is not None and package.origin is not None:
        yield "firearrow/__init__.py", Path(package.origin)
    for folder in FOLDERS:
        yield from _package(f"firearrow.{folder}", f"firearrow/{folder}")
    yield from _package("firearrow.spark_tools.discovery", "pyspark_firearrow")
    for name in CARRIED + tuple(name for name in CARRIED_IF_HERE if importlib.util.find_spec(name)):
        yield from _package(name, name)


def _package(module: str, name: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise PackFailed(f"{module} is not installed: pip install firearrow[spark]")
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in root.rglob("*"):
        if path.suffix == ".py" or path.suffix in COMPILED:
            yield f"{name}/{path.relative_to(root).as_posix()}", path


def _content(source: Path, strip: str | None) -> bytes:
    if strip is None or source.suffix not in COMPILED:
        return source.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / source.name
        command = [strip, "--strip-unneeded", "-o", str(stripped), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STRIP_S, check=False)
        if done.returncode:
            raise PackFailed(f"{source}: strip failed: {done.stderr.strip()[:200]}")
        return stripped.read_bytes()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))
