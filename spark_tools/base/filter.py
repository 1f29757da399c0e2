"""Choice: which messages of a range are wanted. Picklable; natives are made where it is used."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Self

from firearrow._native.base.hash import java_hash
from firearrow._native.columnar.record_filter import RecordFilter


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Everything given must hold; nothing given: every message. Times are ms, the second of a pair exclusive."""

    tags: frozenset[str] = field(default_factory=frozenset)
    """One of these."""
    keys: frozenset[str] = field(default_factory=frozenset)
    """One of the message's keys is one of these."""
    unique_ids: frozenset[str] = field(default_factory=frozenset)
    stored: tuple[int | None, int | None] = (None, None)
    born: tuple[int | None, int | None] = (None, None)
    sql: str | None = None
    """An SQL92 expression over properties, as brokers know it."""
    check_crc: bool = True
    """Records whose bodies do not match their CRCs are lost, see bodies.py; else they are taken as they lie there."""

    def of_columns(self, columns: Collection[str]) -> Self:
        """Where these are all that is handed on: a body that nobody gets is not looked at."""
        return replace(self, check_crc=self.check_crc and "body" in columns)

    def selection(self) -> RecordFilter:
        """All of it but the expression."""
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
        """What a queue's entries hold of the tags, None for any; different tags may have the same code."""
        return frozenset(map(java_hash, self.tags)) if self.tags else None
