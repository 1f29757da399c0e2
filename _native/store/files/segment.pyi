class Segment:
    """One mapped file of the store. Its buffer is the whole mapping, read only."""

    path: str
    base: int
    size: int
    def __init__(self, folder: str, base: int, size: int, name: str | None = None) -> None: ...
    def close(self) -> None: ...
    def discard(self, for_good: bool = False) -> None:
        """Delete a file that its owner let go of; any thread. OSError: it still stands."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

def zero_range(fd: int, begin: int, length: int) -> None:
    """Make a part of a file zeros without writing them; its blocks stay. OSError: not every file system can."""

def give_blocks(fd: int, begin: int, length: int) -> None:
    """Disk blocks for a part of a file that has its size; its bytes stay. OSError: no room, or it cannot be done."""

def fail_next(call: str, error: int, *, after: int = 0, partial_bytes: int = 0) -> None:
    """For tests: the system call ("pwrite", "sync", "reserve", "create", "zero") fails with `error` after `after` good
    ones."""

def heal() -> None: ...
