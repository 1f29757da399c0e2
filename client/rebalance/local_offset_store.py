"""LocalOffsetStore: the offsets of one member in a local file, for BROADCASTING, with Java's path and format.

`<directory>/<client id>/<group>/offsets.json`; `.bak` keeps the previous state. Java's client and this one
read each other's files. The file is read and written in threads, one at a time; everything else is for the
event loop only.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from firearrow._native.protocol import fastjson
from firearrow.client.base.errors import OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.offset_store import NOT_FOUND, OffsetTable, ReadOffset

log = logging.getLogger("firearrow.client")
FILE_NAME = "offsets.json"


class LocalOffsetStore(OffsetTable):
    def __init__(self, directory: str | os.PathLike[str], client_id: str, group: str) -> None:
        super().__init__()
        self._file = OffsetFile(Path(directory) / client_id / group / FILE_NAME)
        self._file_lock = asyncio.Lock()

    @property
    def path(self) -> Path:
        return self._file.path

    async def load(self) -> None:
        async with self._file_lock:
            stored = await asyncio.to_thread(self._file.read)
        for queue, offset in stored.items():
            self.update(queue, offset)

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        """NOT_FOUND if the file cannot be read: there is no other source."""
        if how is not ReadOffset.STORE:
            known = self.cached_offset(queue)
            if known != NOT_FOUND or how is ReadOffset.MEMORY:
                return known
        try:
            async with self._file_lock:
                stored = await asyncio.to_thread(self._file.read)
        except OffsetUnknown as error:
            log.info("%s", error)
            return NOT_FOUND
        offset = stored.get(queue, NOT_FOUND)
        if offset != NOT_FOUND:
            self.update(queue, offset)
        return offset

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """The file keeps its offsets of other queues."""
        await self._merge(queues)

    async def persist_final(self, queues: Collection[MessageQueue]) -> None:
        await self.persist_all(queues)

    async def persist(self, queue: MessageQueue) -> None:
        await self._merge((queue,))

    async def _merge(self, queues: Iterable[MessageQueue]) -> None:
        changed = {queue: offset for queue in queues if (offset := self.cached_offset(queue)) != NOT_FOUND}
        if not changed:
            return
        try:
            async with self._file_lock:
                await asyncio.to_thread(self._file.merge, changed)
        except (OffsetUnknown, OSError) as error:
            log.error("offsets were not written to %s: %s", self.path, error)


class OffsetFile:
    """The file on disk. One thread at a time; other processes may write as well."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = path.with_name(f"{path.name}.bak")
        self._known: dict[MessageQueue, int] = {}
        self._stamp: tuple[int, int, int] | None = None
        """Of the file that `_known` was read from."""

    def read(self) -> dict[MessageQueue, int]:
        """Empty if there is no file. OffsetUnknown: the file and its backup are damaged."""
        stamp = _stamp(self.path)
        if stamp is not None and stamp == self._stamp:
            return self._known
        self._known, self._stamp = {}, None
        try:
            stored = _offsets(self.path)
        except (fastjson.JsonError, OSError) as error:
            log.info("%s cannot be read, using its backup %s: %s", self.path, self._backup, error)
            stored = None
        if stored is not None:
            self._known, self._stamp = stored, stamp
            return stored
        try:
            return _offsets(self._backup) or {}
        except (fastjson.JsonError, OSError) as error:
            raise OffsetUnknown(
                f"{self._backup} cannot be read either: {error}: repair the offsets or delete both files"
            ) from error

    def merge(self, changed: dict[MessageQueue, int]) -> None:
        """A crash leaves a complete file, the old one or the new one. OffsetUnknown, OSError."""
        stored = self.read()
        merged = stored | changed
        if self._stamp is not None:
            if merged == stored:
                return
            self._keep_backup()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        table = {queue: merged[queue] for queue in sorted(merged)}
        self._replace(fastjson.pretty({"offsetTable": table}, is_sorted=False))
        self._known, self._stamp = merged, _stamp(self.path)

    def _replace(self, text: bytes) -> None:
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with new.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)

    def _keep_backup(self) -> None:
        link = self._backup.with_name(f"{self._backup.name}.{os.getpid()}.tmp")
        link.unlink(missing_ok=True)
        os.link(self.path, link)
        link.replace(self._backup)


def _offsets(path: Path) -> dict[MessageQueue, int] | None:
    """None if there is no file, or if it is empty."""
    try:
        if path.stat().st_size > fastjson.ANSWER_BYTES_MAX:
            raise fastjson.JsonError(f"the file has over {fastjson.ANSWER_BYTES_MAX} bytes")
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if not text:
        return None
    content = fastjson.loads_answer(text)
    if not isinstance(content, dict):
        raise fastjson.JsonError("the file must contain an object with offsetTable")
    return fastjson.queue_offsets(content.get("offsetTable") or {})


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes with each new content. None: the file cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
