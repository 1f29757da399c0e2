from typing import final

@final
class NameCounters:
    """Counts messages and bytes by name; see counters.pxd. One thread."""

    rest_messages: int
    rest_bytes: int
    pruned: bool
    """Some names were dropped: counts are lower bounds."""
    def __init__(self, limit: int = 0) -> None:
        """`limit` 0: no limit."""
    def __len__(self) -> int: ...
    def add(self, owner: int, name: bytes, nbytes: int) -> None:
        """Count one more message."""
    def items(self) -> list[tuple[int, bytes, int, int]]:
        """(owner, name, messages, bytes)."""
