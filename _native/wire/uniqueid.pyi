from collections.abc import Callable
from typing import final

@final
class UniqueIds:
    """Ids as Java's client makes them: address, process, salt, ms since the month began, counter; in upper-case hex.

    `month_of(now_ms)` → when the month of this moment began and when the next begins, in ms. 32 characters with an
    address of 4 bytes, 56 with 16. A clock that steps back by less than 1000 s stands still. Any thread.
    """

    def __init__(
        self, host: bytes, process: int, salt: bytes, month_of: Callable[[int], tuple[int, int]]
    ) -> None: ...
    def next(self) -> str: ...
    def at(self, now_ms: int) -> str:
        """The next id if it is `now_ms`."""
