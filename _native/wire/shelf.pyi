KEPT_BYTES: int

class BufferPool:
    """A pool of buffers for large frames, at most KEPT_BYTES. One thread."""

    bytes: int
    def acquire(self, length: int) -> bytearray | None:
        """The smallest buffer of at least `length` bytes, with its old content; None: there is none."""
    def release(self, buffer: bytearray) -> None:
        """Return a buffer that has no other users. Smaller buffers are dropped if the pool is full."""
