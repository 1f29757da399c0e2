"""MessageFilter: which messages of a range are read. Picklable; native filters are built in the worker."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Self

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.record_filter import RecordFilter


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """All conditions must hold; without any, every message matches.

    `stored` and `born` are [start, end) in ms since 1970.
    """

    tags: frozenset[str] = field(default_factory=frozenset)
    """The message's tag is one of these."""
    keys: frozenset[str] = field(default_factory=frozenset)
    """One of the message's keys is one of these."""
    unique_ids: frozenset[str] = field(default_factory=frozenset)
    stored: tuple[int | None, int | None] = (None, None)
    born: tuple[int | None, int | None] = (None, None)
    sql: str | None = None
    """An SQL92 expression over properties, as brokers evaluate it."""
    check_crc: bool = True
    """Whether records whose bodies do not match their CRCs count as lost (see body_check.py)."""

    def of_columns(self, columns: Collection[str]) -> Self:
        """The filter for a reader of these columns: without `body`, bodies are not checked."""
        return replace(self, check_crc=self.check_crc and "body" in columns)

    def selection(self) -> RecordFilter:
        """All conditions except the SQL92 expression."""
        return RecordFilter(
            tags=self.tags or None,
            keys=self.keys or None,
            unique_ids=self.unique_ids or None,
            stored_from=self.stored[0],
            stored_until=self.stored[1],
            born_from=self.born[0],
            born_until=self.born[1],
        )

    def tag_codes(self) -> frozenset[int] | None:
        """The tags codes to look for in queue entries, None for any. Different tags may share a code."""
        return frozenset(map(java_hash, self.tags)) if self.tags else None
