from collections.abc import Callable
from typing import final

from firearrow._native.bulk.spans import Spans
from firearrow._native.store.record import Record

@final
class Columns:
    """Records of `spans` from `first` on: `count_max` at most, and none more once there are `bytes_max`; at least one.

    `opener` is given each record with a compressed body, decoded, and answers the body as it was sent; None: bodies
    stay as they are stored. Without `properties` there is neither `value` nor `properties`. RecordError: the bytes have
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
    def numbers(self, name: str) -> bytearray:
        """i32 or i64 of each record, little-endian: queueId, flag, sysFlag, reconsumeTimes, bodyCrc; queueOffset,
        physicalOffset, preparedTransactionOffset."""
    def times(self, name: str) -> tuple[bytearray | None, bytearray]:
        """Validity and i64 microseconds since 1970 of storeTimestamp or bornTimestamp; outside of the years 1 to 9999
        a time is not there. No validity: all are."""
    def topic(self) -> tuple[bytearray, bytearray]:
        """Offsets and text."""
    def body(self) -> tuple[bytearray, bytearray]: ...
    def hosts(self, name: str) -> tuple[bytearray, bytearray]:
        """bornHost or storeHost: `192.0.2.1:10911`, `[2001:db8::1]:10911`."""
    def value(self, name: bytes) -> tuple[bytearray, bytearray, bytearray]:
        """Validity, offsets and text of the property with that name."""
    def properties(self) -> tuple[bytearray, tuple[bytearray, bytearray], tuple[bytearray, bytearray]]:
        """Offsets of records; offsets and text of names; offsets and text of values. A name stands once in a record,
        with its last value."""
