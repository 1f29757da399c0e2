"""CPU time of this process and its descendants; memory of Spark's Python workers.

Reads /proc. The time of a process that ended is counted with its parent once the parent has waited for it.
"""

import os
import re
from pathlib import Path

from bench.watch import Watch

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
EVERY_S = 0.05
WORKERS = re.compile(r"pyspark(\.|/)daemon|pyspark(\.|/).*worker")


def family() -> dict[int, list[int]]:
    """This process and its descendants: utime, stime, cutime and cstime in ticks."""
    parents: dict[int, int] = {}
    times: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(path.name)] = int(fields[1])
            times[int(path.name)] = [int(field) for field in fields[11:15]]
    found = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: times[each] for each in found}


def cpu_s(before: dict[int, list[int]], after: dict[int, list[int]]) -> float:
    """CPU time between two calls of `family`, including ended processes, except those whose parent ended
    first, as the daemon of Spark's workers does: the kernel does not count them.
    """
    ended = sum(sum(times) for number, times in before.items() if number not in after)
    own = waited_for = 0
    for number, times in after.items():
        gone_by = [now - then for now, then in zip(times, before.get(number, (0, 0, 0, 0)), strict=True)]
        own += sum(gone_by[:2])
        waited_for += sum(gone_by[2:])
    return (own + max(0, waited_for - ended)) * TICK_S


class Sampler(Watch):
    """`worker_mib`: the peak anonymous memory of a Python worker of Spark while this context was entered."""

    def __init__(self) -> None:
        super().__init__(EVERY_S)
        self.worker_mib = 0.0

    def look(self) -> None:
        for number in family():
            try:
                command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                status = Path(f"/proc/{number}/status").read_text()
            except OSError:
                continue  # it has just ended
            used = re.search(r"RssAnon:\s+(\d+) kB", status)
            if used and WORKERS.search(command):
                self.worker_mib = max(self.worker_mib, int(used[1]) / 1024)
