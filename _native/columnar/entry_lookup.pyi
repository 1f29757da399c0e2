from firearrow._native.columnar.record_spans import Spans, Window

def from_entries(
    window: Window,
    entries: Window,
    *,
    base: int,
    first: int,
    tags: frozenset[int] | None = None,
    bytes_max: int = ...,
    queue: tuple[str, int] | None = None,
    is_lmq: bool = False,
) -> tuple[Spans, int]:
    """Find the records of consume queue entries (20 bytes each, big-endian): (records, entries used).

    `first`: queue offset of the first entry. Stops at an entry outside the window [base, base + length), at
    `bytes_max` bytes of records, and before an entry that points to no whole record of its size, position and queue
    offset. RecordError: that is the first entry; the message names its queue offset.

    Entries whose tags code is not in `tags` are skipped without a read of the log. A code is Java's hash of the
    tag; an address into an extension file says nothing about the tag.

    `queue`: topic and number that the records must hold. `is_lmq`: entries of an LMQ (%LMQ%…), whose
    records hold the queue and the queue offset of another queue.
    """
