from collections.abc import Iterable, Mapping
from typing import final

from firearrow._native.columnar.arrow_import import Bytes, ListArray, StringArray

@final
class RowEncoder:
    """Encodes rows as messages. Any thread.

    Each property comes from a column or a constant; null, empty or below 0: not set. `properties` come first,
    without those named in `dropped` or by a column; a list is joined by spaces. `ids`: 20 hex digits and a number;
    a row without UNIQ_KEY gets one from the digits and the number plus its row.
    """

    count: int
    def __init__(
        self,
        body: StringArray,
        *,
        texts: Mapping[str, StringArray] = ...,
        lists: Mapping[str, ListArray] = ...,
        numbers: Mapping[str, Bytes] = ...,
        constants: Mapping[str, str] = ...,
        properties: ListArray | None = None,
        dropped: Iterable[str] = (),
        flags: Bytes | None = None,
        ids: tuple[str, int] | None = None,
    ) -> None: ...
    def batch(self, order: Bytes, start: int, *, bytes_max: int, count_max: int) -> tuple[bytes, int]:
        """The body of a batch request with rows order[start:stop], and `stop`; `order` is int64. At least one row.

        ValueError names a row whose body is null, whose property holds a separator (byte 1 or 2), or which has more
        than 32767 bytes of properties.
        """
    def single(self, row: int) -> tuple[int, bytes, bytes]:
        """Flag, body and properties of one row. ValueError as above."""
