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
    """Records of consume queue entries (20 bytes each, big-endian), the first of which has queue offset `first`:
    (records, entries used).

    Stops at an entry that lies outside of the window [base, base + length), at `bytes_max` bytes of records, and before
    an entry that shows no whole record of its size, place and queue offset; if that is the first of all: RecordError,
    which names the queue offset. Entries whose tags code is not in `tags` are passed over before the log is touched; a
    code is Java's hash of the tag, and an address into an extension file says nothing of it.

    `queue`: topic and number that the records must hold. `is_lmq`: entries of an LMQ (%LMQ%…), whose records hold the
    queue and the queue offset of another.
    """
