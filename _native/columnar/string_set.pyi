from collections.abc import Collection
from typing import final

@final
class StringSet:
    """Exact texts, compared as UTF-8. At most 64 Mi of them."""

    count: int
    """Different ones."""
    def __init__(self, texts: Collection[str]) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, text: str) -> bool: ...
