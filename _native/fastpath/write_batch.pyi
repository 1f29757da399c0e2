from collections.abc import Callable
from typing import Protocol

from firearrow._native.base.clock import Clock
from firearrow._native.base.histogram import Histogram
from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import Queue
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand

RECOVERED_AFTER_MS: int
"""Time without a refusal before the log reports that messages are accepted again."""

class Scheduler(Protocol):
    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run it after the sockets that are ready now. The loop, or the poller that serves them."""

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
    """`arrivals` gets the queues with newly visible messages; `request_sync()` wakes the flusher;
    `full(error)` returns the remark for clients if nothing can be stored."""

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
        self,
        end: int,
        queue: Queue,
        peer: Peer | None,
        answer: RemotingCommand | None,
        *,
        waits: bool = True,
        is_send: bool = False,
    ) -> None:
        """Send `answer` to `peer` once the log up to `end` is as durable as flush mode and role promise.

        `waits=False` (the property WAIT=false): the reply waits for neither disk nor slaves; readers still do.
        `is_send`: the reply says so if slaves did not confirm in time; others are sent as they are.
        """
    def on_durable(self, end: int, then: Callable[[bool], None]) -> None:
        """Call `then(stored)` once the log up to `end` is as durable as flush mode and role promise, or was not
        written."""
    def before_write(self, callback: Callable[[], None]) -> None:
        """Call it once, right before the next write; it may stage messages and add replies."""
    sync_waits: Histogram
    """How long replies waited for the disk, in microseconds."""
    @property
    def waiting(self) -> int:
        """Replies of handlers, and batches of replies, that wait for the disk."""
    def commit(self) -> None:
        """Write the staged messages; runs once a pass of the loop."""
    def synced(self, physical_offset: int) -> None:
        """The log is durable up to here: make it visible to readers, send the replies."""
    def sync_failed(self, remark: str) -> None:
        """A sync failed and is not retried: reject all replies that wait for the disk."""
    def refuse_waiting(self, remark: str) -> None:
        """The broker is no master any more: refuse all sends that are not answered yet; their messages stay."""
    def set_sync_timeout(self, timeout_ms: int) -> None:
        """Change syncFlushTimeout, in ms, as of the next `expire`."""
    def expire(self) -> None:
        """Reply FLUSH_DISK_TIMEOUT to sends that waited longer than syncFlushTimeout; their messages stay."""
    # --- slaves ---
    refuses_sends: bool
    """Sends that wait for slaves are refused: too few copies are in sync."""
    def replicate(self, on_written: Callable[[], None], *, waits: bool) -> None:
        """`on_written` is called after each write. `waits` (SYNC_MASTER): replies and readers wait for slaves."""
    def set_read_unconfirmed(self, allowed: bool) -> None:
        """With `allowed`, readers do not wait for slaves."""
    def set_replicated(self, replicated: int, visible: int, fault: int) -> None:
        """Enough slaves have the log up to `replicated` for replies, up to `visible` for readers. `fault`: the code
        of replies for which too few slaves are in sync; 0: replies wait."""
    def expire_unreplicated(self, timeout_ms: int) -> int:
        """Reply FLUSH_SLAVE_TIMEOUT to sends that slaves have not acknowledged in this time; their messages stay.
        Returns where the last one's record ends; 0: none."""
    async def settled(self) -> None:
        """Wait until nothing waits for the disk."""
