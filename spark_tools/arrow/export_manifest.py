"""The manifest of an export: from where, which ranges, which files, written last: a folder without one is not complete.

`_manifest.json` in the export's folder; the underscore hides it from whatever reads the folder as a table. Reads and
writes that one file and counts the bytes of others; imports neither Spark nor Arrow. Any thread.
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

import orjson

from firearrow._native.base.hash import crc32
from firearrow.spark_tools.base.disk_errors import disk_errors
from firearrow.spark_tools.base.errors import SparkToolsError

NAME = "_manifest.json"
VERSION = 1
BYTES_MAX = 256 << 20


class InvalidManifest(SparkToolsError):
    """A manifest that cannot be read, or files that are not as it says."""


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Offsets [start, end) of one queue at the source; `rows` of them were chosen and are in the files of `part`."""

    topic: str
    broker: str
    queue: int
    start: int
    end: int
    rows: int
    part: int


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """`path` below the folder, with `/`; `part`: which ranges its rows are of, in their order.

    `crc32` is that of the file's bytes without the highest bit, as in records of a store.
    """

    path: str
    rows: int
    bytes: int
    crc32: int
    part: int


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """What a finished export holds. `options` as they were given, `lost` the ranges that were gone at the source: of
    many some are named, `lost_messages` and `lost_ranges` count all."""

    job: str
    source: str
    started_ms: int
    finished_ms: int
    options: Mapping[str, str]
    columns: Sequence[str]
    partition_by: Sequence[str]
    ranges: Sequence[ExportedRange]
    files: Sequence[ExportedFile]
    lost: Sequence[str] = field(default_factory=tuple)
    lost_messages: int = 0
    lost_ranges: int = 0
    version: int = VERSION

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)

    def write(self, folder: Path) -> Path:
        """On the disk when it returns; a reader finds the whole of it or none. NotWritten."""
        path, beside = folder / NAME, folder / f".{NAME}.{os.getpid()}"
        text = orjson.dumps(
            asdict(self) | {"rows": self.rows, "bytes": self.bytes}, option=orjson.OPT_INDENT_2
        )
        with disk_errors(path):
            try:
                with beside.open("wb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """InvalidManifest: there is none, or it is not one of ours."""
        path = folder / NAME
        try:
            if path.stat().st_size > BYTES_MAX:
                raise InvalidManifest(f"{path}: more than {BYTES_MAX >> 20} MiB, that is no manifest")
            found = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            raise InvalidManifest(
                f"{folder}: no {NAME} in it; the export has not finished, run it again with the same options"
            ) from None
        except (OSError, orjson.JSONDecodeError) as fault:
            raise InvalidManifest(f"{path}: {fault}") from fault
        try:
            return cls._of(found)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise InvalidManifest(f"{path}: not as an export writes it ({fault!r})") from fault

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Self:
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']}, this package knows {VERSION}")
        files = tuple(ExportedFile(**each) for each in found["files"])
        for each in files:
            _check_path(each.path)
        return cls(
            job=str(found["job"]), source=str(found["source"]), started_ms=int(found["started_ms"]),
            finished_ms=int(found["finished_ms"]), options=dict(found["options"]), columns=tuple(found["columns"]),
            partition_by=tuple(found["partition_by"]), files=files, lost=tuple(found["lost"]),
            ranges=tuple(ExportedRange(**each) for each in found["ranges"]),
            lost_messages=int(found["lost_messages"]), lost_ranges=int(found["lost_ranges"]),
        )  # fmt: skip

    def check_files(self, folder: Path, *, contents: bool = False) -> None:
        """Every file is there with its size, and with `contents` its bytes are right. InvalidManifest names one."""
        for each in self.files:
            path = folder / each.path
            try:
                size = path.stat().st_size
            except OSError as fault:
                raise InvalidManifest(f"{path}: {fault.strerror}; the manifest lists it") from fault
            if size != each.bytes:
                raise InvalidManifest(f"{path}: {size} bytes, the manifest says {each.bytes}")
            if contents and (found := file_crc(path)) != each.crc32:
                raise InvalidManifest(f"{path}: crc {found:#010x}, the manifest says {each.crc32:#010x}")


def file_crc(path: Path) -> int:
    """CRC-32 of a whole file, without the highest bit. OSError."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as window:
            return crc32(window)


def _check_path(path: str) -> None:
    """A path of a manifest stays below its folder."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.name:
        raise ValueError(f"path {path!r}")
