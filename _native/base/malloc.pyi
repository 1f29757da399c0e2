def set_malloc_thresholds(freed_bytes: int, *, blocks_below: int) -> None:
    """Keep up to `freed_bytes` of freed memory at the end of the heap. Blocks of at least `blocks_below`
    bytes (at most 32 MiB) are mapped separately and returned to the system when freed. For the process; call
    once."""
