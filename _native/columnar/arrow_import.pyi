from typing import final

Bytes = bytes | bytearray | memoryview

@final
class StringArray:
    """A column of strings or bytes: `count` rows from row `first` on, with int32 offsets and a validity bit for
    each row.
    """

    count: int
    def __init__(self, offsets: Bytes, data: Bytes, valid: Bytes | None, first: int, count: int) -> None:
        """ValueError: offsets decrease or are outside the data."""
    def hashes(self) -> memoryview:
        """Java's hash of each string, int32; 0 for a null."""

@final
class ListArray:
    """A column of lists of strings; with `values`, a column of maps from items to values."""

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
