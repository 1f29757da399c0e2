from collections.abc import Iterable
from typing import Protocol

from firearrow._native.wire.uniqueid import UniqueIds

class Outgoing(Protocol):
    """What is asked of a message: firearrow.client's Message has it."""

    body: bytes
    unique_id: str | None

def message_properties(message: Outgoing, ids: UniqueIds, more: dict[str, str] | None = None) -> bytes:
    """All properties of the message as text; it is given a unique id if it has none. `more` comes last and wins.

    ValueError: the bytes 1 or 2 in a name or a value, an empty one, no str, more than 32767 bytes; a number out of its
    range, or two delays.
    """

def alike(messages: Iterable[Outgoing]) -> bool:
    """Whether they may be one batch without a closer look: the same topic and wait_store, no delay, no sharding key."""

def batch_body(messages: Iterable[Outgoing], ids: UniqueIds) -> bytes:
    """The body of a batch request: every message with its flag, body and properties. ValueError as above."""
