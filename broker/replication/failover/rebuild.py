"""Rebuild: a slave whose log its master cannot continue starts over with an empty one; the old one is kept.

The wish is in the store before anything is moved, so that a start after a crash goes on with it. Loop thread, at start,
or a tool.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.confirm_offset import FILE_NAME as CONFIRM_OFFSET
from firearrow.broker.replication.log.epoch_file import FILE_NAME as EPOCH_FILE

DAMAGED = "damaged"
LOG = "commitlog"
MOVED = (
    *(LOG, "consumequeue", "batchconsumequeue", "index", "journal", "checkpoint", "timerlog", "timerwheel"),
    *(EPOCH_FILE, f"{EPOCH_FILE}.bak", CONFIRM_OFFSET, "abort", "abort.bak"),
)
"""What a store has of its log, by path in the store's folder."""
PROGRESS = (
    *("consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json", "consumerOrderInfo.json"),
    *("timercheck", "timermetrics", "trimmedQueues.json", "deletedTopics.json", "receiptHandles.json"),
)
"""The same below `config`; topics, groups, users and quotas stay."""


class Kept(NamedTuple):
    """Where the old files are now, and their size."""

    folder: Path
    size_bytes: int

    @property
    def text(self) -> str:
        return f"{self.size_bytes / 1e6:.1f} MB of the old log and its queues are kept in {self.folder}"


def set_aside(root: Path, commitlog_path: str = "") -> Kept:
    """Move the log and all that was derived from it below `damaged`; the store is locked by the caller.
    `commitlog_path`: of a log in another folder. OSError: what is moved stays moved, the rest can be moved later."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z"
    folder = root / DAMAGED / name
    size = 0
    for path in _present(root):
        size += size_of(path)
        _move(path, folder / path.relative_to(root))
    separate = Path(commitlog_path) if commitlog_path else None
    if separate is not None and separate.exists():
        size += size_of(separate)
        _move(separate, separate.parent / DAMAGED / name / LOG)
    return Kept(folder, size)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(
        os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names
    )


def _present(root: Path) -> list[Path]:
    below_config = [root / "config" / f"{name}{end}" for name in PROGRESS for end in ("", ".bak")]
    return [path for path in (*(root / name for name in MOVED), *below_config) if path.exists()]


def _move(path: Path, target: Path) -> None:
    make_dirs(str(target.parent))
    path.rename(target)
    fsync_dir(str(target.parent))
    fsync_dir(str(path.parent))
