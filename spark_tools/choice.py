"""Choice: which messages of a range are wanted. Picklable; natives are made where it is used."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Choice:
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
