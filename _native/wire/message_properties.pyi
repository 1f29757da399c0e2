from collections.abc import Iterable
from typing import Protocol

from firearrow._native.wire.unique_ids import UniqueIds

class Outgoing(Protocol):
    """The attributes of a message that are read; firearrow.client's Message has them."""

    body: bytes
    unique_id: str | None

def message_properties(message: Outgoing, ids: UniqueIds, more: dict[str, str] | None = None) -> bytes:
    """All properties of the message in wire format; sets a unique id if it has none. `more` comes last and
    wins.

    ValueError: a name or value that is empty, not a str, or contains the bytes 1 or 2; more than 32767 bytes;
    a number out of range; two delays.
    """

def can_batch(messages: Iterable[Outgoing]) -> bool:
    """Whether the messages may form one batch without further checks: the same topic and wait_store, no delay, no
    sharding key."""

def batch_body(messages: Iterable[Outgoing], ids: UniqueIds) -> bytes:
    """The body of a batch request: every message with its flag, body and properties. ValueError as above."""
