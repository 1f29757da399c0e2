"""The archive that carries FireArrow to executors which lack it: `--archives FILE#firearrow_lib` of spark-submit.

Holds the package as it is installed here, its compiled modules stripped of symbols, and the packages without which a
worker cannot send; not numpy, pyarrow and pyspark. Fits the platform and the Python it was made with. Any thread.
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
"""What the client imports besides the standard library."""
CARRIED_IF_HERE = ("lz4", "zstandard")
"""What opens bodies that are compressed so."""
COMPILED = (".so", ".dylib")
SUFFIXES = (".tar.gz", ".tgz")
STRIP_S = 60
LIBRARY = "firearrow_lib"
"""The name below which executors find the unpacked archive."""


class PackFailed(SparkToolsError):
    """The archive could not be written, or this installation lacks a part of it."""


@dataclass(frozen=True, slots=True)
class Packed:
    path: Path
    files: int
    bytes: int
    stripped: bool

    def arguments(self) -> tuple[str, ...]:
        """What spark-submit has to be told, so that executors use it."""
        return (
            "--archives", f"{self.path}#{LIBRARY}",
            "--conf", f"spark.executorEnv.PYTHONPATH={LIBRARY}",
        )  # fmt: skip


def pack(target: Path) -> Packed:
    """Write the archive (tar, gzip) through a temporary name. The same input gives the same bytes. PackFailed."""
    if not target.name.endswith(SUFFIXES):
        raise PackFailed(f"{target}: Spark unpacks by the name's end; let it end in {' or '.join(SUFFIXES)}")
    strip = shutil.which("strip")
    parts = sorted(_parts())
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with (
            beside.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, source in parts:
                _add(archive, name, _content(source, strip))
        beside.replace(target)
    except OSError as fault:
        raise PackFailed(f"{target}: {fault.strerror or fault}; choose another file or make room") from fault
    finally:
        beside.unlink(missing_ok=True)
    return Packed(target, len(parts), target.stat().st_size, strip is not None)


def _parts() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and the files here."""
    for folder in FOLDERS:
        yield from _package(f"firearrow.{folder}", f"firearrow/{folder}")
    yield from _package("firearrow.spark_tools.discovery", "pyspark_firearrow")
    for name in CARRIED + tuple(name for name in CARRIED_IF_HERE if importlib.util.find_spec(name)):
        yield from _package(name, name)


def _package(module: str, name: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise PackFailed(f"{module} is not installed here: pip install firearrow[spark]")
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in root.rglob("*"):
        if path.suffix == ".py" or path.suffix in COMPILED:
            yield f"{name}/{path.relative_to(root).as_posix()}", path


def _content(source: Path, strip: str | None) -> bytes:
    if strip is None or source.suffix not in COMPILED:
        return source.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / source.name
        command = [strip, "--strip-unneeded", "-o", str(bare), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STRIP_S, check=False)
        if done.returncode:
            raise PackFailed(f"{source}: strip says {done.stderr.strip()[:200]}")
        return bare.read_bytes()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))
