from collections.abc import Callable
from typing import Protocol

from firearrow._native.base.clock import Clock
from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import Queue
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand

RECOVERED_AFTER_MS: int
"""Time without a refusal before the log reports that messages are stored again."""

class Scheduler(Protocol):
    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run it after the sockets that are ready now; the loop, or the engine that serves them."""

class Peer(Protocol):
    @property
    def closed(self) -> bool: ...
    def reply(self, answer: RemotingCommand) -> None: ...

class Journal(Protocol):
    """Entries written before their records (broker/append/progress_journal)."""

    @property
    def has_promises(self) -> bool: ...
    def sync(self) -> None: ...
    def cancel(self, written: int) -> None: ...

class WriteBatch:
    """`arrivals` gets queues whose messages readers may see now; `request_sync()` wakes the flusher; `full(error)`
    is the remark for clients if nothing can be stored."""

    def __init__(
        self,
        scheduler: Scheduler,
        store: MessageStore,
        clock: Clock,
        *,
        sync_timeout_ms: int,
        arrivals: ArrivalNotifier,
        request_sync: Callable[[], None],
        full: Callable[[Exception], str],
        journal: Journal,
    ) -> None: ...
    def reply_after(
        self, end: int, queue: Queue, peer: Peer | None, answer: RemotingCommand | None, *, waits: bool = True
    ) -> None:
        """Send `answer` to `peer` once the log up to `commit` is as durable as the flush mode promises.

        `waits=False` (the property WAIT=false): the answer does not wait for the disk; readers still do.
        """
    def on_durable(self, end: int, then: Callable[[bool], None]) -> None:
        """Call `then(stored)` when the log up to `commit` is as durable as the flush mode promises, or was not written."""
    def before_write(self, callback: Callable[[], None]) -> None:
        """Call it once, right before this turn's write; it may stage and park."""
    def commit(self) -> None:
        """Write the staged messages; runs once a pass of the loop."""
    def synced(self, physical_offset: int) -> None:
        """The log is on the disk up to here: show it to readers, send the answers."""
    def sync_failed(self, remark: str) -> None:
        """A sync failed and is not retried: refuse all that waits for the disk."""
    def set_sync_timeout(self, timeout_ms: int) -> None:
        """Change syncFlushTimeout, in ms; it counts at the next `expire`."""
    def expire(self) -> None:
        """Send answers that waited longer than syncFlushTimeout with FLUSH_DISK_TIMEOUT; their messages stay."""
    async def settled(self) -> None:
        """Wait until nothing waits for the disk."""
