class Segment:
    """One mapped file of the store. Its buffer is the whole mapping, read only."""

    path: str
    base: int
    size: int
    def __init__(self, folder: str, base: int, size: int, name: str | None = None) -> None: ...
    def close(self) -> None: ...
    def discard(self, durable: bool = False) -> None:
        """Delete a file that its owner has detached; any thread. OSError: the file still exists."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

def zero_range(fd: int, begin: int, length: int) -> None:
    """Zero a range without writing it; its blocks stay. OSError: not every file system supports it."""

def allocate_blocks(fd: int, begin: int, length: int) -> None:
    """Allocate disk blocks for a range; size and bytes stay. OSError: disk full, or not supported."""

def fail_next(call: str, error: int, *, after: int = 0, partial_bytes: int = 0) -> None:
    """For tests: the system call ("pwrite", "sync", "reserve", "create", "zero") fails with `error` after
    `after` good ones, until `heal`; a pwrite may write `partial_bytes` first."""

def heal() -> None:
    """For tests: end what `fail_next` began."""
