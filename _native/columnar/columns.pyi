from collections.abc import Callable, Sequence
from typing import final

from firearrow._native.columnar.arrow_export import ArrowBatch
from firearrow._native.columnar.record_spans import Spans
from firearrow._native.store.log.record import Record

@final
class Columns:
    """Records of `spans` from `first` on: `count_max` at most, and none more once there are `bytes_max`; at least one.

    `opener` is given each record with a compressed body, decoded, and answers the body as it was sent; None: bodies
    stay as they are stored. Without `properties` no batch can have any. RecordError: the bytes have
    changed meanwhile. Texts are UTF-8, bad bytes replaced by U+FFFD as Python does. A column that would need more than
    2 GiB is an OverflowError, the way out of which is fewer records. One thread at a time; releases the GIL.
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
        """A column per field, of the types in spark_tools/arrow/columns.py: by the column's name, or by the name of a
        property, as bytes, its value as text. Buffers of validity only where something is not there: a time outside of
        the years 1 to 9999, a property that the record lacks. In `properties` a name stands once in a record, with its
        last value. KeyError: no such column."""
