"""ProcessMetrics: memory, descriptors, mappings and disk of a broker's process and its store, from the system."""

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class ProcessMetrics:
    anonymous_kib: int
    descriptors: int
    mappings: int
    disk_kib: int
    segments: int

    @staticmethod
    def of(pid: int, store: Path) -> "ProcessMetrics":
        proc = Path(f"/proc/{pid}")
        anonymous = re.search(r"RssAnon:\s+(\d+) kB", (proc / "status").read_text())
        assert anonymous is not None
        return ProcessMetrics(
            int(anonymous[1]),
            len(os.listdir(proc / "fd")),
            (proc / "maps").read_text().count("\n"),
            used_kib(store),
            len(os.listdir(store / "commitlog")),
        )

    @staticmethod
    def highest(samples: list["ProcessMetrics"]) -> "ProcessMetrics":
        return ProcessMetrics(
            *(max(getattr(sample, each.name) for sample in samples) for each in fields(ProcessMetrics))
        )


def used_kib(folder: Path) -> int:
    """Blocks on the disk; files may be created and deleted meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks
            except FileNotFoundError:
                continue
    return total // 2
