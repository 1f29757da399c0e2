from mmap import mmap

def first_written(window: bytes | bytearray | memoryview | mmap, start: int, stop: int) -> int:
    """Position in [start, stop) of the first byte that is not zero, else `stop`. ValueError: `start` is below 0."""
