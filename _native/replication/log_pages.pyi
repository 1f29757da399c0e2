def will_need(view: memoryview) -> None:
    """Ask the disk for these bytes of a mapped file, without waiting for them."""

def bytes_in_memory(view: memoryview) -> int:
    """How many bytes of a mapped file, from the first on, can be read without waiting for the disk. Looks at most at
    4 MiB."""
