"""StoreFolder: one store, damaged or not. Opens nothing for writing, takes no lock."""

import fcntl
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.log_reader import boundary
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import BATCH_FOLDER
from firearrow._native.offline.segment_files import SegmentFile, rolled_files
from firearrow._native.store.files import config_files
from firearrow._native.store.files.errors import StoreUnreadable

QUEUE_ID_MAX = (1 << 31) - 1
NAME_BYTES_MAX = 255
FLOCK = struct.Struct("hhqqi4x")


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """`name`: the broker name, for reports. Picklable."""

    name: str
    root: str

    def path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    def segments(self) -> list[SegmentFile]:
        """The files of the log, listed now; files may be missing between them. StoreUnreadable."""
        if not os.path.isdir(self.path("commitlog")):
            raise StoreUnreadable(
                f"{self.root} is not a store: it has no folder commitlog; give a store folder with --path"
            )
        return rolled_files(self.path("commitlog"))

    def is_running(self) -> bool:
        """Whether a broker holds the store's lock. Queries the lock without taking it."""
        try:
            fd = os.open(self.path("lock"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnreadable(f"{self.path('lock')} cannot be opened: {error.strerror}") from None
        try:
            query = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            return bool(FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))[0] != fcntl.F_UNLCK)
        finally:
            os.close(fd)

    def was_killed(self) -> bool:
        """Whether the abort file exists: a broker runs, or was not stopped cleanly."""
        return os.path.exists(self.path("abort"))

    def log_end(self) -> int:
        """The current end of the last whole record, for a growing store."""
        log = LogFiles(self.path("commitlog"), MappedFiles(1))
        end = log.end(log.newest())
        while (following := boundary(log, end)) is not None:
            end = log.end(following)
        return end

    def has_queues(self) -> bool:
        return os.path.isdir(self.path("consumequeue"))

    def queues(self) -> Iterator[tuple[str, int]]:
        """(topic, queue id) of each queue folder, plain ones first, each kind sorted."""
        for kind in ("consumequeue", BATCH_FOLDER):
            for topic in _folders(self.path(kind)):
                ids = (name for name in _folders(self.path(kind, topic)) if name.isdecimal())
                yield from (
                    (topic, queue_id) for queue_id in sorted(map(int, ids)) if queue_id <= QUEUE_ID_MAX
                )

    def queue_folder(self, topic: bytes, queue_id: int) -> str | None:
        """The folder of a record's queue; None if the topic cannot be a folder name."""
        usable = topic not in (b"", b".", b"..") and b"/" not in topic and b"\0" not in topic
        if not usable or len(topic) > NAME_BYTES_MAX or queue_id < 0:
            return None
        return self.folder_of(os.fsdecode(topic), queue_id)

    def folder_of(self, topic: str, queue_id: int) -> str:
        """The folder of a queue in `queues`."""
        kind = BATCH_FOLDER if os.path.isdir(self.path(BATCH_FOLDER, topic)) else "consumequeue"
        return self.path(kind, topic, str(queue_id))

    def trims(self) -> config_files.Trims:
        """Below these offsets entries may be deleted."""
        return config_files.trims(self.root)

    def deletions(self) -> config_files.Deletions:
        return config_files.deletions(self.root)

    def topics(self) -> frozenset[bytes] | None:
        """The topics that the store's broker knows; None: that is not known."""
        return config_files.topics(self.root)

    def index_paths(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.path("index")))
        except FileNotFoundError:
            return []
        return [self.path("index", name) for name in names if name.isdecimal() and len(name) == 17]


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
