from typing import NamedTuple

from firearrow._native.columnar.property_edits import BROKER_OWN as BROKER_OWN
from firearrow._native.columnar.property_edits import REPLAY_BROKER as REPLAY_BROKER
from firearrow._native.columnar.property_edits import REPLAY_JOB as REPLAY_JOB
from firearrow._native.columnar.property_edits import REPLAY_OFFSET as REPLAY_OFFSET
from firearrow._native.columnar.property_edits import REPLAY_QUEUE as REPLAY_QUEUE
from firearrow._native.columnar.property_edits import REPLAY_TOPIC as REPLAY_TOPIC
from firearrow._native.columnar.property_edits import PropertyEdits as PropertyEdits
from firearrow._native.columnar.record_spans import Spans

BATCH_BYTES_MAX: int
"""What a broker accepts in one request (4 MiB), less a margin: a FireArrow broker counts whole records."""
BATCH_COUNT_MAX: int
"""A FireArrow broker takes at most this many items on its fast path."""

class BatchError(ValueError):
    """A record cannot be sent with these edits; the message names its queue offset."""

class Batch(NamedTuple):
    """Records [first, next) as the body of one request.

    `sys_flag`: the compression bits that all of them share.
    """

    body: bytes
    count: int  # type: ignore[assignment]
    next: int
    sys_flag: int
    born_ms: int
    """Born time of the first record: a batch has only one."""

class Single(NamedTuple):
    flag: int
    body: bytes
    properties: bytes
    sys_flag: int
    """Compression bits only."""
    reconsume_times: int
    born_ms: int

def batch_body(
    spans: Spans, first: int, edits: PropertyEdits, *, bytes_max: int = ..., count_max: int = ...
) -> Batch:
    """Encode as many records from `first` on as fit and have the same compression; at least one, even if it is too
    large.

    IndexError: there is no record `first`. BatchError: the properties of a record exceed 32,767 bytes.
    RecordError: the bytes of a record have changed since it was found.
    """

def single(spans: Spans, index: int, edits: PropertyEdits) -> Single:
    """Encode one record for a separate request. Errors as of batch_body."""
