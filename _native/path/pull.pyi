from collections.abc import Callable, Mapping
from typing import Protocol

from firearrow._native.store.store import MessageStore

class Offsets(Protocol):
    @property
    def resets(self) -> Mapping[tuple[str, str, int], int]: ...
    def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """ValueError: it is refused."""

class Stats(Protocol):
    def got(self, group: str, topic: str, messages: int, size: int) -> None: ...

Resolve = Callable[[str, str, int, int, str, str], tuple[int, tuple[int, ...], int, int] | None]
"""Group, topic, flags, version, expression and its type of a pull → the topic's queues, hashes of the tags that match
(none: all), sysFlag of topic and of group; None if each such pull needs a look."""

class Puller:
    """Pulls that find messages at once, without a Python object for each record."""

    def __init__(self, store: MessageStore, resolve: Resolve, offsets: Offsets, stats: Stats) -> None: ...
    def forget(self) -> None:
        """What `resolve` said may not be true any more."""
