from collections.abc import Mapping, Sequence
from mmap import mmap
from typing import NamedTuple, final

from firearrow._native.checks.findings import Faults
from firearrow._native.columnar.counters import NameCounters
from firearrow._native.columnar.record_spans import End

TORN: dict[int, str]
"""What `Survey.torn` means, in words."""

class SurveyedQueue(NamedTuple):
    """A queue as the records of a range describe it. `low`, `high`: offsets of entries to be matched, -1: none."""

    number: int
    topic: bytes
    queue_id: int
    messages: int
    bytes: int
    first_ms: int
    last_ms: int
    fitting: int
    """Settled records whose entry points to them."""
    low: int
    high: int
    is_lmq: bool
    """Has entries for records of other queues, by INNER_MULTI_DISPATCH, and no messages itself."""

@final
class Survey:
    """Checks and counts the records of a range of the log; see log_records.pxd. One thread."""

    faults: Faults
    tags: NameCounters
    """Owner: number of the topic in `topic_names`."""
    hosts: NameCounters
    """The address of the producer, 4 or 16 bytes."""
    hours: NameCounters
    """Owner: hours since 1970, by the store time."""
    records: int
    log_bytes: int
    half: int
    """Records marked as prepared or rolled back: they have no entry."""
    deleted: int
    """Settled records of deleted topics, which have no entry."""
    keys_expected: int
    tags_expected: int
    keys_found: int
    tags_found: int
    keys_outside: int
    """Keys of records that the index files do not cover."""
    unknown_entries: int
    torn: int
    def __init__(
        self,
        *,
        check_crc: bool = True,
        with_keys: bool = True,
        delays_ms: Sequence[int] = ...,
        names_max: int = 8192,
        rows_max: int = ...,
        keys_max: int = ...,
        faults_max: int = 1000,
        deletions: Mapping[bytes, tuple[int, int]] = ...,
    ) -> None:
        """`delays_ms`: of the delay levels, from 1 on; empty: not known, so that any time of delivery counts that is
        not before the record was stored. `deletions`: topic → end of the log and time (ms) when it was deleted."""
    def walk(
        self, window: bytes | bytearray | memoryview | mmap, start: int, stop: int, *, base: int
    ) -> tuple[int, End]:
        """Check the records from position `start` that begin before `stop`: (next position, why it ended).

        End.LIMIT before `stop`: `rows_max` or `keys_max` was reached; match, settle and `clear` first. End.TORN:
        `torn` says why. A record with a bad CRC is a fault, and the walk continues.
        """
    def queues(self) -> list[SurveyedQueue]: ...
    def topic_names(self) -> list[bytes]: ...
    def match(self, number: int, window: bytes | bytearray | memoryview | mmap, first: int) -> None:
        """Compare rows of queue `number` with the entries of a file, the first of which has queue offset `first`."""
    def settle(self, number: int, trimmed_below: int = 0, begin: int = 0) -> None:
        """Turn rows that did not fit into faults; of records below `trimmed_below` the entries may be deleted.

        Records below `begin` are older than the queue: they are of a deleted topic with its name.
        """
    def clear(self) -> None:
        """Drop rows and keys; counts stay."""
