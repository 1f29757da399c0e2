"""ExportManifest: source, ranges and files of an export. Written last: an export without one is incomplete.

It is `_manifest.json` in the export's folder; the underscore hides it from programs that read the folder as
a table. Imports neither Spark nor Arrow. Any thread.
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

import orjson

from firearrow._native.base.hash import crc32
from firearrow.spark_tools.base.disk_errors import write_durably
from firearrow.spark_tools.base.errors import SparkToolsError

NAME = "_manifest.json"
VERSION = 1
BYTES_MAX = 256 << 20


class InvalidManifest(SparkToolsError):
    """A manifest cannot be read, or files do not match it."""


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Offsets [start, end) of one queue at the source; `rows` of them matched and are in the files of
    `part`."""

    topic: str
    broker: str
    queue: int
    start: int
    end: int
    rows: int
    part: int


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """`path`: relative to the folder, with `/`; `part`: number of the ranges that its rows come from, in
    order.

    `crc32`: of the file's bytes, without the highest bit, as in the records of a store.
    """

    path: str
    rows: int
    bytes: int
    crc32: int
    part: int


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """The contents of a finished export. `options`: as given by the user, as JSON values; earlier versions
    wrote all of them as text. `lost`: ranges that were missing at the source; if there are many, only some
    are listed, but `lost_messages` and `lost_ranges` count all."""

    job: str
    source: str
    started_ms: int
    finished_ms: int
    options: Mapping[str, Any]
    columns: Sequence[str]
    partition_by: Sequence[str]
    ranges: Sequence[ExportedRange]
    files: Sequence[ExportedFile]
    lost: Sequence[str] = field(default_factory=tuple)
    lost_messages: int = 0
    lost_ranges: int = 0
    seconds: float = 0.0
    """The job's own time, of the run that finished it; 0 in earlier versions."""
    version: int = VERSION

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)

    def write(self, folder: Path) -> Path:
        """Writes the manifest atomically and durably. WriteFailed."""
        path = folder / NAME
        text = orjson.dumps(
            asdict(self) | {"rows": self.rows, "bytes": self.bytes}, option=orjson.OPT_INDENT_2
        )
        write_durably(path, text)
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """InvalidManifest: there is none, or it is not one of FireArrow's."""
        path = folder / NAME
        try:
            if path.stat().st_size > BYTES_MAX:
                raise InvalidManifest(
                    f"{path}: over {BYTES_MAX >> 20} MiB, which is too large for a manifest"
                )
            found = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            raise InvalidManifest(
                f"{folder}: it has no {NAME}: the export is not finished; run it again with the same options"
            ) from None
        except (OSError, orjson.JSONDecodeError) as fault:
            raise InvalidManifest(f"{path}: {fault}") from fault
        try:
            return cls._of(found)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise InvalidManifest(
                f"{path}: not a valid manifest ({fault!r}); run the export again"
            ) from fault

    @classmethod
    def _of(cls, found: dict[str, Any]) -> Self:
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']}, this package supports {VERSION}")
        files = tuple(ExportedFile(**each) for each in found["files"])
        for each in files:
            _check_path(each.path)
        return cls(
            job=str(found["job"]),
            source=str(found["source"]),
            started_ms=int(found["started_ms"]),
            finished_ms=int(found["finished_ms"]),
            options=dict(found["options"]),
            columns=tuple(found["columns"]),
            partition_by=tuple(found["partition_by"]),
            files=files,
            lost=tuple(found["lost"]),
            ranges=tuple(ExportedRange(**each) for each in found["ranges"]),
            lost_messages=int(found["lost_messages"]),
            lost_ranges=int(found["lost_ranges"]),
            seconds=float(found.get("seconds", 0)),
        )

    def check_files(self, folder: Path, *, contents: bool = False) -> None:
        """Checks that every file exists with its size, and with `contents` its CRC. InvalidManifest names a
        file."""
        for each in self.files:
            path = folder / each.path
            try:
                size = path.stat().st_size
            except OSError as fault:
                raise InvalidManifest(f"{path}: {fault.strerror}; the manifest lists it") from fault
            if size != each.bytes:
                raise InvalidManifest(f"{path}: {size} bytes, the manifest has {each.bytes}")
            if contents and (found := file_crc(path)) != each.crc32:
                raise InvalidManifest(f"{path}: crc {found:#010x}, the manifest has {each.crc32:#010x}")


def file_crc(path: Path) -> int:
    """CRC-32 of a whole file, without the highest bit. OSError."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as window:
            return crc32(window)


def _check_path(path: str) -> None:
    """ValueError: the path would lead out of the export's folder."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.name:
        raise ValueError(f"path {path!r}")
