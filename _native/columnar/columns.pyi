from collections.abc import Callable, Sequence
from typing import final

from firearrow._native.columnar.arrow_export import ArrowBatch
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.store.log.record import Record

@final
class Columns:
    """Records of `spans` from `first` on: at most `count_max`, until they reach `bytes_max`; at least one.

    `opener` gets each record with a compressed body, decoded, and returns the body as it was sent; None: bodies
    stay as they are stored. Without `properties` no batch can have any. Strings are UTF-8; bad bytes are replaced
    by U+FFFD as Python does. One thread at a time; releases the GIL.

    RecordError: the bytes have changed since the records were found. OverflowError: a column would need more than
    2 GiB; use fewer records.
    """

    first: int
    count: int
    size: int
    """Bytes of the records, with bodies as opened."""
    def __init__(
        self,
        spans: Spans,
        first: int = 0,
        *,
        opener: Callable[[Record], bytes] | None = None,
        properties: bool = True,
        count_max: int = ...,
        bytes_max: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    def batch(self, fields: Sequence[str | bytes], broker_name: str = "") -> ArrowBatch:
        """One column for each field, with the types of spark_tools/arrow/columns.py. A str names a column; bytes
        name a property, whose value is a string.

        A column has a validity buffer only if it has nulls: a time outside the years 1 to 9999, or a property that
        a record lacks. In `properties` each name occurs once in a record, with its last value.
        KeyError: no such column.
        """
