from collections.abc import Collection
from typing import final

@final
class StringSet:
    """A set of at most 64 Mi strings, compared as UTF-8."""

    count: int
    """Number of distinct strings."""
    def __init__(self, texts: Collection[str]) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, text: str) -> bool: ...
