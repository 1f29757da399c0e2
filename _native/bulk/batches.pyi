from collections.abc import Mapping
from typing import NamedTuple, final

from firearrow._native.bulk.spans import Spans

BATCH_BYTES_MAX: int
"""What a broker takes in one request (4 MiB), less a margin for the header."""
BATCH_COUNT_MAX: int
"""A FireArrow broker takes so many items on its short way."""
BROKER_OWN: frozenset[str]
"""Names of properties that brokers set themselves, or that would act again: delays, timers, transactions, POP."""
REPLAY_JOB: str
REPLAY_BROKER: str
REPLAY_TOPIC: str
REPLAY_QUEUE: str
REPLAY_OFFSET: str

class BatchError(ValueError):
    """A record cannot be sent with these edits; the text names its queue offset."""

@final
class Edits:
    """What is done to the properties of every record: `drop` leaves out by name, `put` comes behind what is left.

    `provenance` (name of the job, broker the records come from) puts the REPLAY_* properties with the record's own
    topic, queue and queue offset in place of older ones. Picklable. ValueError: a name is empty, or a text has a byte 1 or 2.
    """

    drop: frozenset[str]
    put: Mapping[str, str]
    provenance: tuple[str, str] | None
    def __init__(
        self,
        drop: frozenset[str] = ...,
        put: Mapping[str, str] | None = None,
        provenance: tuple[str, str] | None = None,
    ) -> None: ...

class Batch(NamedTuple):
    """Records [first, next) as the body of one request. `sys_flag`: the compression bits that all of them share."""

    body: bytes
    count: int  # type: ignore[assignment]
    next: int
    sys_flag: int
    born_ms: int
    """When the first of them was born: a batch has but one."""

class Single(NamedTuple):
    flag: int
    body: bytes
    properties: bytes
    sys_flag: int
    """Compression bits only."""
    reconsume_times: int
    born_ms: int

def batch_body(
    spans: Spans, first: int, edits: Edits, *, bytes_max: int = ..., count_max: int = ...
) -> Batch:
    """As many records from `first` on as fit and are compressed alike, at least one, though it be larger alone.

    IndexError: there is no record `first`. BatchError: the properties of one come to over 32,767 bytes. RecordError: the bytes
    of one have changed meanwhile.
    """

def single(spans: Spans, index: int, edits: Edits) -> Single:
    """One record for a request of its own. Errors as of batch_body."""
