from typing import final

Bytes = bytes | bytearray | memoryview

@final
class StringArray:
    """A column of texts or bytes: int32 offsets, `count` of them from item `first` on, and a bit a row that
    is no null.
    """

    count: int
    def __init__(self, offsets: Bytes, data: Bytes, valid: Bytes | None, first: int, count: int) -> None:
        """ValueError: offsets that go back or lie outside of the data."""
    def hashes(self) -> memoryview:
        """Java's hash of each text, int32; of a null 0."""

@final
class ListArray:
    """A column of lists of texts; with `values` a map from items to values."""

    count: int
    paired: bool
    def __init__(
        self,
        offsets: Bytes,
        valid: Bytes | None,
        first: int,
        count: int,
        items: StringArray,
        values: StringArray | None = None,
    ) -> None: ...
