from typing import final

@final
class NameCounters:
    """Messages and bytes of each name; see names.pxd. One thread."""

    rest_messages: int
    rest_bytes: int
    pruned: bool
    """Some names were let go: counts are lower bounds."""
    def __init__(self, limit: int = 0) -> None:
        """0: as many as there are."""
    def __len__(self) -> int: ...
    def add(self, owner: int, name: bytes, nbytes: int) -> None:
        """One message more."""
    def items(self) -> list[tuple[int, bytes, int, int]]:
        """(owner, name, messages, bytes)."""
