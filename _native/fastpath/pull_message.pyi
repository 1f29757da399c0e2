from collections.abc import Callable, Mapping
from typing import Any, Protocol

from firearrow._native.base.clock import Clock
from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.quotas import Quotas
from firearrow._native.fastpath.request_times import RequestTimes
from firearrow._native.store.log.journal_page import JournalPage
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand

class Offsets(Protocol):
    @property
    def resets(self) -> Mapping[tuple[str, str, int], int]: ...
    @property
    def table(self) -> Mapping[str, dict[int, int]]: ...
    def pulls_of(self, group: str, topic: str) -> dict[int, int] | None: ...
    def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """ValueError: the offset is refused."""

    def counted(self, group: str, moved: bool, /) -> None: ...

class Stats(Protocol):
    def got(self, group: str, topic: str, messages: int, size: int, requests: int) -> None: ...
    def missed(self, requests: int) -> None: ...

Readable = tuple[int, tuple[int, ...], int, int, int, bool, int, int]
Resolve = Callable[[str, str, int, int, str, str], Readable | None]
"""Group, topic, flags, version, expression and expression type of a pull → number of queues, tags codes that
match (empty: all), sysFlag of topic and group, longest wait in ms (-1: not held here), whether a topic of this
name was deleted, the broker that is suggested to readers near the log's end, and to others. None: the pulls take
the complete path."""

class Puller:
    """Plain pulls without a Python object for each record; they find messages at once or wait in
    `hold_service`.

    `beyond(request, peer, generation)` runs a held pull a last time on the complete path and replies; `generation`: of
    users and rules when it was held. `journal_page`
    records each commit to a queue that has an offset in `offsets.table`; others go to `offsets.commit`.
    """

    def __init__(
        self,
        store: MessageStore,
        hold_service: PullHoldService,
        resolve: Resolve,
        beyond: Callable[[RemotingCommand, Any, int], object],
        offsets: Offsets,
        journal_page: JournalPage,
        stats: Stats,
        clock: Clock,
        times: RequestTimes | None = None,
    ) -> None: ...
    def limit(self, quotas: Quotas | None) -> None:
        """None: no quota limits reads."""
    def protect(self, access: AccessCheck) -> None:
        """Handle only what `access` lets through."""
    def configure(self, lite_pull: bool) -> None:
        """Whether LITE_PULL_MESSAGE is permitted."""
    def forget(self) -> None:
        """Drop the results of `resolve`, which may be out of date."""
    def count(self) -> None:
        """Report the counts since the last call to the statistics."""
