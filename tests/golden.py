"""Recorded conversations and stores of a live Apache RocketMQ (`recorded/README.md`)."""

import base64
import functools
import gzip
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent / "recorded"
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Recorded:
    """One frame of a session. `raw` is the whole frame, or None where the recording cut it."""

    line: dict[str, Any]

    @property
    def raw(self) -> bytes | None:
        return (
            None
            if self.line.get("cutAt") or "raw64" not in self.line
            else base64.b64decode(self.line["raw64"])
        )


@functools.cache
def sessions() -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in (GOLDEN / "wire").glob("*.jsonl.gz")))


@functools.cache
def session(name: str) -> tuple[Recorded, ...]:
    """Not to be changed."""
    lines = gzip.decompress((GOLDEN / "wire" / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return tuple(Recorded(json.loads(line)) for line in lines)


def whole_frames() -> Iterator[tuple[str, Recorded, bytes]]:
    for name in sessions():
        for recorded in session(name):
            raw = recorded.raw
            if raw is not None:
                yield name, recorded, raw


@functools.cache
def _archive(name: str) -> list[tuple[tarfile.TarInfo, dict[int, bytes]]]:
    """Folders and files of a store; of a file the pages that are not all zeros, by position."""
    members = []
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        for member in archive:
            pages, file = {}, archive.extractfile(member)
            while file is not None and (page := file.read(PAGE_BYTES)):
                if page.count(0) < len(page):
                    pages[file.tell() - len(page)] = page
            members.append((member, pages))
    return members


def unpacked(name: str, folder: Path) -> Path:
    """`store-apache` or `store-apache-crashed` as `folder/name`. Zeros are holes, as in the files that a broker
    creates."""
    for member, pages in _archive(name):
        path = folder / member.name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        with path.open("xb") as file:
            for position, page in pages.items():
                file.seek(position)
                file.write(page)
            file.truncate(member.size)
        os.utime(path, (member.mtime, member.mtime))
    return folder / name


def unpacked_file(name: str, path: str) -> bytes:
    """What a file of that store contains."""
    for member, pages in _archive(name):
        if member.name == f"{name}/{path}":
            content = bytearray(member.size)
            for position, page in pages.items():
                content[position : position + len(page)] = page
            return bytes(content)
    raise FileNotFoundError(f"{name} has no {path}")


@functools.cache
def manifest(name: str) -> dict[str, Any]:
    """What Apache returned of all queues of that store. Not to be changed."""
    document: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / f"{name}.manifest.json.gz").read_bytes()))
    return document
