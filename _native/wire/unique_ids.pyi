from typing import final

@final
class UniqueIds:
    """Ids in the format of the Java client: address, process, salt, ms since the month began, counter; in
    upper-case hex.

    32 characters with an address of 4 bytes, 56 with 16. The month is that of the local clock; a clock that
    steps back by less than 1000 s stands still. Any thread.
    """

    def __init__(self, host: bytes, process: int, salt: bytes) -> None:
        """Only the lower 16 bits of `process` are used."""
    @property
    def length(self) -> int:
        """Characters of an id."""
    def next(self) -> str: ...
    def at(self, now_ms: int) -> str:
        """The next id at the time `now_ms`."""
