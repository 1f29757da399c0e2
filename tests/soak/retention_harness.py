"""RetentionHarness: retention of a small store in this process, with a manual clock and a simulated disk."""

import asyncio
import dataclasses
import datetime
import os
from pathlib import Path
from typing import Any

from firearrow.broker.base.config import Config
from firearrow.broker.base.disk_space import DiskUse
from firearrow.broker.base.options import Options
from firearrow.broker.services.retention import Retention
from firearrow.broker.tables.trimmed_queues import TrimmedQueues
from tests.support.clock import ManualClock
from tests.support.stores import open_store, put

BEGIN_MS = 1_700_000_000_000


def at_hour(hour: int) -> int:
    """A time of that local hour, in ms."""
    day = datetime.datetime.fromtimestamp(BEGIN_MS / 1000).astimezone()
    return int(day.replace(hour=hour).timestamp() * 1000)


class RetentionHarness:
    """Segments of 4096 bytes, queue files of 10 entries. `use` is the disk usage, or an error that is raised."""

    def __init__(self, folder: Path, hour: int = 12, **options: Any) -> None:  # noqa: ANN401
        self.folder = folder
        self.clock = ManualClock(at_hour(hour))
        self.store = open_store(folder)
        quick: dict[str, Any] = {
            "delete_files_max": 4,
            "delete_interval_ms": 0,
            "queue_delete_interval_ms": 0,
        }
        self.config = Config(dataclasses.replace(Options(), **(quick | options)))
        self.use: DiskUse | Exception = DiskUse(0.2, 0.2, 0.2)
        self.moved: list[tuple[str, int]] = []
        self.trimmed = TrimmedQueues()
        self.kept = 1 << 62

    def fill(self, count: int = 100, topic: str = "T") -> None:
        """Messages of 200 bytes, in turn in two queues; all synced. Files get the clock's time."""
        for number in range(count):
            put(self.store, b"%0200d" % number, topic, number % 2, now_ms=self.clock.now_ms())
            self.store.write()
        self.store.flush_queues()
        self.age(0)

    def age(self, by_ms: int) -> None:
        """Every segment's file was last written that long ago."""
        at = (self.clock.now_ms() - by_ms) * 1_000_000
        for path in (self.folder / "commitlog").iterdir():
            os.utime(path, ns=(at, at))

    def segments(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "commitlog").iterdir())

    def path(self, at: int) -> Path:
        return self.folder / "commitlog" / f"{at:020d}"

    def inode(self, at: int) -> int:
        return self.path(at).stat().st_ino

    @property
    def spare(self) -> bytes | None:
        """The content of the file that waits to be recycled."""
        path = self.folder / "spare"
        return path.read_bytes() if path.exists() else None

    def queue_files(self, queue_id: int = 0, topic: str = "T") -> list[int]:
        folder = self.folder / "consumequeue" / topic / str(queue_id)
        return sorted(int(path.name) for path in folder.iterdir())

    def rounds(self, count: int = 1, *, manual: bool = False) -> None:
        asyncio.run(self._rounds(count, manual=manual))

    async def _rounds(self, count: int, *, manual: bool) -> None:
        retention = self.retention()
        if manual:
            retention.delete_expired()
        try:
            for _ in range(count):
                await retention.round()
        finally:
            await retention.stop()

    def retention(self) -> Retention:
        """For a running loop."""
        return Retention(
            asyncio.get_running_loop(),
            self.store,
            self.config,
            self.clock,
            self.trimmed,
            measure=self._measure,
            moved=self.moved.extend,
            kept=lambda: self.kept,
        )

    def _measure(self) -> DiskUse:
        if isinstance(self.use, Exception):
            raise self.use
        return self.use
