from mmap import mmap

class TimerLogSurvey:
    """Units of a timer log, file after file: `heads` slot (time // step) → position of its last unit, of slots at or
    behind `read_ms`; `end` is behind the last whole unit; `odd` the position of the first unit that is chained to none
    of its slot, or names a message out of the log's order, -1 none."""

    heads: dict[int, int]
    end: int
    odd: int
    def __init__(self, step_ms: int, read_ms: int, start: int) -> None:
        """`start`: position of the log's first unit."""
    def check_file(self, window: bytes | bytearray | memoryview | mmap, base: int) -> bool:
        """The next file, whole; whether the log goes on behind it."""
