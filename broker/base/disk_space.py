"""How full the disks of a store are, and what follows from it (Apache's isSpaceToDelete). Keeps nothing.

`measured` asks the file system, which may take its time: not in the loop's thread.
"""

import os
from dataclasses import dataclass
from enum import IntEnum

from firearrow.broker.base.options import Options

RECLAIM_PERCENT = (10, 95)
FORCE_PERCENT = (30, 85)
FULL_PERCENT = (35, 90)
"""Apache takes a ratio that lies outside for the nearest one within."""


class Pressure(IntEnum):
    """Each asks for what those before it do, too."""

    NONE = 0
    RECLAIM = 1
    """Delete what is expired, at any hour."""
    FORCE = 2
    """… and what is not, if `cleanFileForciblyEnable`."""
    FULL = 3
    """… and take no messages."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Used shares of the partitions that hold log, queues and index, 0 to 1, rounded up to whole hundredths."""

    log: float
    queues: float
    index: float

    @property
    def fullest(self) -> float:
        return max(self.log, self.queues)

    def __str__(self) -> str:
        return f"CL: {self.log:5.2f} CQ: {self.queues:5.2f} INDEX: {self.index:5.2f}"


def measured(log_folder: str, root: str) -> DiskUse:
    """OSError."""
    own = used_share(root)
    return DiskUse(used_share(log_folder), own, own)


def used_share(folder: str) -> float:
    """Of what a process without privileges may use; OSError."""
    about = os.statvfs(folder)
    used = about.f_blocks - about.f_bfree
    whole = used + about.f_bavail
    return -(-used * 100 // whole) / 100 if whole else 0.0


def pressure(use: DiskUse, options: Options) -> Pressure:
    for level, percent, (low, high) in (
        (Pressure.FULL, options.disk_full_percent, FULL_PERCENT),
        (Pressure.FORCE, options.disk_force_percent, FORCE_PERCENT),
        (Pressure.RECLAIM, options.disk_reclaim_percent, RECLAIM_PERCENT),
    ):
        if use.fullest > min(max(percent, low), high) / 100:
            return level
    return Pressure.NONE
