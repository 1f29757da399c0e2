"""How full the disks of a store are, and what to do about it (Apache's isSpaceToDelete). Stateless.

`measured` calls the file system, which may block: never call it in the loop thread.
"""

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from firearrow.broker.base.options import Options

RECLAIM_PERCENT = (10, 95)
FORCE_PERCENT = (30, 85)
FULL_PERCENT = (35, 90)
"""Ranges of the options; a value outside counts as the nearest limit, as in Apache."""


class Pressure(IntEnum):
    """Each level includes the actions of the levels before it."""

    NONE = 0
    RECLAIM = 1
    """Delete expired files at any hour."""
    FORCE = 2
    """Also delete files that are not expired, if `cleanFileForciblyEnable`."""
    FULL = 3
    """Also refuse messages."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Used shares of the partitions of log, queues and index: 0 to 1, rounded up to hundredths."""

    log: float
    queues: float
    index: float

    @property
    def fullest(self) -> float:
        return max(self.log, self.queues)

    def __str__(self) -> str:
        return f"CL: {self.log:5.2f} CQ: {self.queues:5.2f} INDEX: {self.index:5.2f}"


class DiskSpace(NamedTuple):
    """Of a file system, in bytes; `free`: what an unprivileged process may use. `used_share`: as `used_share`."""

    total: int
    used: int
    free: int
    used_share: float


def space_of(folder: str) -> DiskSpace:
    """The space of the folder's file system now. OSError."""
    status = os.statvfs(folder)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return DiskSpace(total, total - status.f_bfree * status.f_frsize, free, used_share(folder))


def measured(log_folder: str, root: str) -> DiskUse:
    """The use of the disks now. OSError."""
    root_share = used_share(root)
    return DiskUse(used_share(log_folder), root_share, root_share)


def used_share(folder: str) -> float:
    """The used share of the space that an unprivileged process may use. OSError."""
    status = os.statvfs(folder)
    used = status.f_blocks - status.f_bfree
    total = used + status.f_bavail
    return -(-used * 100 // total) / 100 if total else 0.0


def pressure(use: DiskUse, options: Options) -> Pressure:
    for level, percent, (low, high) in (
        (Pressure.FULL, options.disk_full_percent, FULL_PERCENT),
        (Pressure.FORCE, options.disk_force_percent, FORCE_PERCENT),
        (Pressure.RECLAIM, options.disk_reclaim_percent, RECLAIM_PERCENT),
    ):
        if use.fullest > min(max(percent, low), high) / 100:
            return level
    return Pressure.NONE
