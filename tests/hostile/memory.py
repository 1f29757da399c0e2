"""What a process uses: CPU time, memory. Watched: its anonymous memory now, and the peak since the last call.

A separate thread.
"""

import re
import threading
from pathlib import Path

LOOK_S = 0.01


def anonymous_kib(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise ProcessLookupError(f"process {pid} is gone")
    return int(found[1])


def worked_s(pid: int) -> float:
    """CPU seconds of the process's first thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Watched:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = self.now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def now(self) -> int:
        """KiB."""
        return anonymous_kib(self._pid)

    def take_peak(self) -> int:
        """KiB, since the last call."""
        peak, self._peak = max(self._peak, self.now), self.now
        return peak

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self._peak = max(self._peak, self.now)
            except (ProcessLookupError, FileNotFoundError):
                return
