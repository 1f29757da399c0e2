from collections.abc import Callable, Mapping
from typing import Any, Protocol

from firearrow._native.path.holds import Holds
from firearrow._native.store.notes import Notes
from firearrow._native.store.store import MessageStore
from firearrow._native.wire.clocks import Clock
from firearrow._native.wire.command import RemotingCommand

class Offsets(Protocol):
    @property
    def resets(self) -> Mapping[tuple[str, str, int], int]: ...
    @property
    def table(self) -> Mapping[str, dict[int, int]]: ...
    def pulls_of(self, group: str, topic: str) -> dict[int, int] | None: ...
    def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """ValueError: it is refused."""

    def counted(self, group: str) -> None: ...

class Stats(Protocol):
    def got(self, group: str, topic: str, messages: int, size: int, requests: int) -> None: ...
    def missed(self, requests: int) -> None: ...

Resolve = Callable[[str, str, int, int, str, str], tuple[int, tuple[int, ...], int, int, int] | None]
"""Group, topic, flags, version, expression and its type of a pull → the topic's queues, hashes of the tags that match
(none: all), sysFlag of topic and of group, how many ms it may wait (-1: not here); None: each pull needs a look."""

class Puller:
    """Plain pulls without a Python object for each record: that find messages at once, or wait for them in `holds`.

    `beyond(request, peer)` runs a pull that waited a last time, and answers it. `notes` is told of each commit to a
    queue that has one in `offsets.table`; others are for `offsets.commit`.
    """

    def __init__(
        self,
        store: MessageStore,
        holds: Holds,
        resolve: Resolve,
        beyond: Callable[[RemotingCommand, Any], object],
        offsets: Offsets,
        notes: Notes,
        stats: Stats,
        clock: Clock,
    ) -> None: ...
    def forget(self) -> None:
        """What `resolve` said may not be true any more."""
    def count(self) -> None:
        """Tell the statistics what was got, and missed, since the last call."""
