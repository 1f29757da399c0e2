from mmap import mmap

class TimerLogSurvey:
    """Checks the units of a timer log, file after file.

    `heads`: slot (time // step) → position of its last unit, for slots at or after `read_ms`. `end`: position after
    the last whole unit. `odd`: position of the first unit that is not chained to a unit of its slot, or names a
    message out of the log's order; -1: none.
    """

    heads: dict[int, int]
    end: int
    odd: int
    def __init__(self, step_ms: int, read_ms: int, start: int) -> None:
        """`start`: position of the log's first unit."""
    def check_file(self, window: bytes | bytearray | memoryview | mmap, base: int) -> bool:
        """Check the next file, given whole; returns whether the log continues after it."""
