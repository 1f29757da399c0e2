"""RepairLog: a line for each damage found when a store is opened; keeps what is removed under STORE/damaged.

It decides nothing: the code that finds the damage states what to do. Thread: the appender's, at the open.
"""

import os
import shutil
from collections.abc import Iterator

LINES_MAX = 1000
COPY_BYTES = 1 << 20
FOLDER = "damaged"


class RepairLog:
    """`rebuild`: queues and index must be compared with the whole log, because some file was not as it was
    left. `highest_offset`: the log once reached at least this offset, since files exist after a damaged
    one."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folder = os.path.join(root, FOLDER)
        self._left_out = 0
        self._lines: list[str] = []
        self.rebuild = False
        self.highest_offset = 0

    @property
    def lines(self) -> list[str]:
        left_out = [f"{self._left_out} more findings are not listed"] if self._left_out else []
        return self._lines + left_out

    def record(self, line: str) -> None:
        if len(self._lines) < LINES_MAX:
            self._lines.append(line)
        else:
            self._left_out += 1

    def move_aside(self, path: str) -> str:
        """Move a file or folder out of the store; returns its new path. OSError."""
        moved_to = self._free_path(path)
        shutil.move(path, moved_to)
        return moved_to

    def save_copy(self, path: str, start: int, length: int) -> str | None:
        """Copy bytes that are about to be truncated or overwritten; returns the copy's path, None if all are
        zero.

        Holes of a sparse file stay holes, and zeros become holes. OSError.
        """
        copy, target = None, -1
        with open(path, "rb") as source:
            try:
                for position, chunk in _nonzero_chunks(source.fileno(), start, start + length):
                    if target < 0:
                        copy = self._free_path(f"{path}-at-{start}")
                        target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                    _write(target, chunk, position - start)
                if target >= 0:
                    os.fsync(target)
            finally:
                if target >= 0:
                    os.close(target)
        return copy

    def _free_path(self, path: str) -> str:
        """An unused path: NUMBER-FOLDER-NAME."""
        os.makedirs(self._folder, exist_ok=True)
        numbers = [int(name[:4]) for name in os.listdir(self._folder) if name[:4].isdecimal()]
        name = os.path.relpath(path, self._root).replace(os.sep, "-").replace("..-", "")
        return os.path.join(self._folder, f"{max(numbers, default=0) + 1:04d}-{name[-200:]}")


def _nonzero_chunks(source: int, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of each chunk that is not all zeros."""
    end = min(end, os.fstat(source).st_size)
    while position < end:
        try:
            data = os.lseek(source, position, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        hole = min(os.lseek(source, data, os.SEEK_HOLE), end)
        position = data
        while position < hole:
            chunk = os.pread(source, min(hole - position, COPY_BYTES), position)
            if chunk.strip(b"\0"):
                yield position, chunk
            position += len(chunk)


def _write(target: int, data: bytes, position: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(target, data[done:], position + done)
