"""A broker with a fast clock and a simulated disk: `python -m tests.soak.broker --store DIR …`, with the
arguments of `firearrow broker`. One second here is FIREARROW_CLOCK_RATE seconds there; times of files do not change
and are read on that clock. The file DIR.disk says how full the disk is (0 to 1); without it, it is nearly empty.
"""

import os
import sys
import time
from pathlib import Path

from firearrow.broker.app import foundation, services
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.disk_space import DiskUse
from firearrow.broker.services.retention import Retention
from firearrow.client.cli.main import main

RATE = int(os.environ.get("FIREARROW_CLOCK_RATE", "3600"))
BEGAN_MS = time.time_ns() // 1_000_000


class FastClock(Clock):
    """Monotonic time is real, because peers that wait are real."""

    def now_ms(self) -> int:
        return BEGAN_MS + (time.time_ns() // 1_000_000 - BEGAN_MS) * RATE

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class FastRetention(Retention):
    def expired_ms(self) -> int:
        return BEGAN_MS + (super().expired_ms() - BEGAN_MS) // RATE


def measured_disk(log_folder: str, root: str) -> DiskUse:
    try:
        used = float(Path(f"{root}.disk").read_text())
    except FileNotFoundError:
        used = 0.01
    return DiskUse(used, used, used)


if __name__ == "__main__":
    vars(foundation).update(Clock=FastClock)
    vars(services).update(Retention=FastRetention, measured=measured_disk)
    main(["broker", *sys.argv[1:]])
