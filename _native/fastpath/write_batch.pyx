"""WriteBatch: messages staged in one pass of the loop become durable together (see write_batch.pxd)."""

import asyncio
import logging
from collections import deque

from firearrow._native.fastpath.pending_replies cimport PendingReply
from firearrow._native.wire.codes cimport FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT

from firearrow._native.fastpath.request_times import BOUNDS_US
from firearrow._native.store.message_store import StoreError

# type: from firearrow._native.fastpath.long_polling import Queue
# type: class Scheduler(Protocol):
# type:     def call_soon(self, callback: Callable[[], object]) -> object:
# type:         """Run it after the sockets that are ready now. The loop, or the poller that serves them."""
# type: class Peer(Protocol):
# type:     @property
# type:     def closed(self) -> bool: ...
# type:     def reply(self, answer: RemotingCommand) -> None: ...
# type: class Journal(Protocol):
# type:     """Entries written before their records (broker/append/progress_journal)."""
# type:
# type:     @property
# type:     def has_promises(self) -> bool: ...
# type:     def sync(self) -> None: ...
# type:     def cancel(self, written: int) -> None: ...

log = logging.getLogger("firearrow.append")

RECOVERED_AFTER_MS = 1000  # type: int
"""Time without a refusal before the log reports that messages are accepted again."""

cdef enum:
    EVERYTHING = 0x3FFFFFFFFFFFFFFF


cdef class WriteBatch:
    """`arrivals` gets the queues with newly visible messages; `request_sync()` wakes the flusher;
    `full(error)` returns the remark for clients if nothing can be stored."""

    def __init__(
        self,
        scheduler,  # type: Scheduler
        MessageStore store not None,
        Clock clock not None,
        *,
        int64_t sync_timeout_ms,
        ArrivalNotifier arrivals not None,
        request_sync,  # type: Callable[[], None]
        full,  # type: Callable[[Exception], str]
        journal,  # type: Journal
    ):
        # type: (...) -> None
        self.scheduler = scheduler
        self.store = store
        self.clock = clock
        self.sync_flush = store.sync_flush
        self.sync_timeout_ms = sync_timeout_ms
        self.arrivals = arrivals
        self.request_sync = request_sync
        self.full = full
        self.journal = journal
        self.refused_ms = -1
        self.before_write_callbacks, self.staged, self.callbacks = [], [], []
        self.unsynced, self.unsynced_callbacks = deque(), deque()
        self.replicated = self.replicated_visible = EVERYTHING
        self.sync_waits = Histogram(BOUNDS_US)
        self.all_synced = asyncio.Event()
        self.all_synced.set()

    # ---- staging ----

    def reply_after(
        self, int64_t end, tuple queue not None, peer, answer, *, bint waits=True, bint is_send=False
    ):
        # type: (int, Queue, Peer | None, RemotingCommand | None, bool, bool) -> None
        """Send `answer` to `peer` once the log up to `end` is as durable as flush mode and role promise.

        `waits=False` (the property WAIT=false): the reply waits for neither disk nor slaves; readers still
        do. `is_send`: the reply states it if slaves did not confirm in time; others are sent as they are.
        """
        cdef PendingReply pending_reply = PendingReply.__new__(PendingReply)
        pending_reply.end, pending_reply.queue = end, queue
        pending_reply.peer, pending_reply.answer = peer, answer
        pending_reply.waits, pending_reply.since_ms = waits, self.clock.monotonic_ms()
        pending_reply.is_send = is_send
        self.add_pending(pending_reply)

    cdef int add_reply_batch(self, ReplyBatch reply_batch) except -1:
        """Add a batch, which accepts replies until another reply is added or the commit."""
        self.add_pending(reply_batch)
        self.reply_batch = reply_batch
        return 0

    cdef int add_pending(self, Pending waiting) except -1:
        self.close_reply_batch()
        self.staged.append(waiting)
        return self.schedule_commit()

    def on_durable(self, int64_t end, then):
        # type: (int, Callable[[bool], None]) -> None
        """Call `then(stored)` once the log up to `end` is as durable as flush mode and role promise, or
        was not written."""
        self.callbacks.append((end, then))

    def before_write(self, callback):
        # type: (Callable[[], None]) -> None
        """Call it once, right before the next write; it may stage messages and add replies."""
        self.before_write_callbacks.append(callback)
        self.schedule_commit()

    cdef int schedule_commit(self) except -1:
        if not self.planned:
            self.scheduler.call_soon(self.commit)
            self.planned = True
        return 0

    cdef int close_reply_batch(self) except -1:
        if self.reply_batch is not None:
            self.reply_batch.closed = True
            self.reply_batch = None
        return 0

    # ---- commit ----

    def commit(self):
        # type: (...) -> None
        """Write the staged messages; runs once a pass of the loop."""
        cdef Pending waiting
        cdef list staged, callbacks
        while self.before_write_callbacks:
            run_isolated(self.before_write_callbacks.pop(0))
        self.planned = False
        self.close_reply_batch()
        try:
            staged, self.staged, callbacks, self.callbacks = self.staged, [], self.callbacks, []
        except MemoryError:
            self.schedule_commit()            # end it with the next commit
            raise
        if self.sync_flush and self.journal.has_promises:
            self.sync_journal()
        try:
            self.store.write()
        except (OSError, StoreError, MemoryError) as error:
            self.journal.cancel(self.store.written)
            reject(staged, callbacks, self.full(error))
            return self.note_refused(error)
        if self.sync_flush or self.waits_for_slaves:
            self.await_confirm(staged, callbacks)
        else:
            for waiting in staged:
                waiting.send()
            for _, then in callbacks:
                run_isolated(then, True)
            self.notify(staged)
        if self.on_written is not None:
            run_isolated(self.on_written)
        if self.refused_ms >= 0:
            self.note_stored()

    cdef int notify(self, list settled) except -1:
        """Notify readers of their queues."""
        cdef list queues = []
        cdef Pending waiting
        cdef bint heard = self.arrivals.has_waiters()
        for waiting in settled:
            if heard or not waiting.is_plain:
                waiting.collect_queues(queues)
        return self.arrivals.notify(queues)

    # ---- the disk and the slaves ----

    cdef int await_confirm(self, list staged, list callbacks) except -1:
        cdef Pending waiting
        self.unsynced_callbacks.extend(callbacks)
        for waiting in staged:
            waiting.send_unsynced()
        self.unsynced.extend(staged)
        if self.unshown is not None:
            self.unshown.extend(staged)
        self.all_synced.clear()
        if self.stopped is not None:          # the flusher stopped in the meantime
            self.sync_failed(self.stopped)
        elif self.sync_flush:
            self.request_sync()
        else:
            self.durable = self.store.log.written
            self.advance()
        return 0

    def synced(self, int64_t physical_offset):
        # type: (...) -> None
        """The log is durable up to here: make it visible to readers, send the replies."""
        self.durable = physical_offset
        self.advance()

    cdef int advance(self) except -1:
        """Confirm what the disk and the slaves have."""
        if self.slave_fault != 0:
            self.answer_unreplicated()
        if self.read_unconfirmed:
            self.show_unconfirmed()
        return self.confirm(min(self.durable, self.replicated_visible))

    cdef int confirm(self, int64_t physical_offset) except -1:
        cdef list settled = []
        cdef int64_t now_ms = self.clock.monotonic_ms()
        cdef Pending waiting
        self.show(physical_offset)
        while self.unsynced and (<Pending> self.unsynced[0]).end <= physical_offset:
            waiting = self.unsynced.popleft()
            settled.append(waiting)
            self.sync_waits.add(1000 * max(now_ms - waiting.since_ms, <int64_t> 0), 1)
            waiting.send_synced()
        while self.unsynced_callbacks and self.unsynced_callbacks[0][0] <= physical_offset:
            run_isolated(self.unsynced_callbacks.popleft()[1], True)
        if settled and not self.read_unconfirmed:
            self.notify(settled)
        return self.set_if_all_synced()

    cdef int show(self, int64_t physical_offset) except -1:
        """Show the log up to here. Readers of what is hidden since the start hear of it once they see all."""
        cdef list hidden = self.hidden
        self.store.confirm(physical_offset)
        if hidden and self.store.reader.confirmed >= self.hidden_end:
            self.hidden = None
            self.arrivals.notify(hidden)
        return 0

    cdef int show_unconfirmed(self) except -1:
        """Readers see what is durable here, whatever the slaves have."""
        cdef list shown = []
        self.show(self.durable)
        while self.unshown and (<Pending> self.unshown[0]).end <= self.durable:
            shown.append(self.unshown.popleft())
        return self.notify(shown) if shown else 0

    cdef int answer_unreplicated(self) except -1:
        """Too few slaves are in sync: do not let replies wait for them."""
        cdef Pending waiting
        cdef list late = []
        for waiting in reversed(self.unsynced):
            if waiting.end <= self.given_up:
                break
            if self.replicated < waiting.end <= self.durable:
                late.append(waiting)
        for waiting in reversed(late):
            self.given_up = waiting.end
            waiting.expire(self.slave_fault)
        return 0

    def sync_failed(self, str remark not None):
        # type: (...) -> None
        """A sync failed and is not retried: reject all replies that wait for the disk."""
        self.stopped = remark
        while self.unsynced:
            (<Pending> self.unsynced.popleft()).reject_synced(remark)
        while self.unsynced_callbacks:
            run_isolated(self.unsynced_callbacks.popleft()[1], False)
        self.set_if_all_synced()

    def refuse_waiting(self, str remark not None):
        # type: (...) -> None
        """The broker is no longer the master: refuse all sends without an answer yet; their messages stay."""
        cdef Pending waiting
        cdef list staged = self.staged
        self.close_reply_batch()
        self.staged = []
        for waiting in staged:
            waiting.reject(remark)
        while self.unsynced:
            (<Pending> self.unsynced.popleft()).reject_synced(remark)
        self.all_synced.set()

    def set_sync_timeout(self, int64_t timeout_ms):
        # type: (...) -> None
        """Change syncFlushTimeout, in ms, as of the next `expire`."""
        self.sync_timeout_ms = timeout_ms

    def expire(self):
        # type: (...) -> None
        """Reply FLUSH_DISK_TIMEOUT to sends that waited longer than syncFlushTimeout; their messages stay."""
        cdef Pending waiting
        cdef int64_t oldest = self.clock.monotonic_ms() - self.sync_timeout_ms
        for waiting in self.unsynced:
            if waiting.since_ms > oldest:
                break
            if waiting.end > self.durable:
                waiting.expire(FLUSH_DISK_TIMEOUT)

    # ---- the slaves ----

    def replicate(self, on_written, *, bint waits):
        # type: (Callable[[], None], bool) -> None
        """`on_written` is called after each write. `waits` (SYNC_MASTER): replies and readers wait for
        slaves."""
        self.on_written = on_written
        self.waits_for_slaves = waits
        self.durable = self.hidden_end = self.store.log.written
        self.hidden = self.store.hidden_queues()

    def set_read_unconfirmed(self, bint allowed):
        # type: (...) -> None
        """With `allowed`, readers do not wait for slaves."""
        if allowed == self.read_unconfirmed:
            return
        self.read_unconfirmed = allowed
        self.unshown = deque(self.unsynced) if allowed else None
        self.advance()

    def set_replicated(self, int64_t replicated, int64_t visible, int32_t fault):
        # type: (...) -> None
        """Enough slaves have the log up to `replicated` for replies, up to `visible` for readers. `fault`:
        the code of replies for which too few slaves are in sync; 0: replies wait."""
        self.replicated, self.replicated_visible, self.slave_fault = replicated, visible, fault
        self.advance()

    def expire_unreplicated(self, int64_t timeout_ms):
        # type: (...) -> int
        """Reply FLUSH_SLAVE_TIMEOUT to sends that slaves have not acknowledged in this time; their
        messages stay. Returns where the last one's record ends; 0: none."""
        cdef Pending waiting
        cdef int64_t late = 0
        cdef int64_t oldest = self.clock.monotonic_ms() - timeout_ms
        for waiting in self.unsynced:
            if waiting.since_ms > oldest:
                break
            if max(self.given_up, self.replicated) < waiting.end <= self.durable:
                self.given_up = late = waiting.end
                waiting.expire(FLUSH_SLAVE_TIMEOUT)
        return late

    async def settled(self):
        # type: (...) -> None
        """Wait until nothing waits for the disk."""
        await self.all_synced.wait()

    cdef int set_if_all_synced(self) except -1:
        if not self.unsynced and not self.unsynced_callbacks:
            self.all_synced.set()
        return 0

    cdef int sync_journal(self) except -1:
        """A journal entry must reach the disk before its record: a power cut in between would repeat the
        delivery."""
        try:
            self.journal.sync()
        # already logged by the journal; continue, although a power cut may repeat deliveries
        except OSError:
            pass
        return 0

    @property
    def waiting(self):
        # type: (...) -> int
        """Replies of handlers, and batches of replies, that wait for the disk."""
        return len(self.unsynced)

    # ---- log lines ----

    cdef int note_refused(self, error) except -1:
        """Log once that the disk refuses writes."""
        if self.refused_ms < 0:
            log.error("messages are refused because nothing can be stored: %s", str(error) or "no memory")
        self.refused_ms = self.clock.monotonic_ms()
        return 0

    cdef int note_stored(self) except -1:
        """Log once that the disk takes messages again, not after each small message that still fits."""
        if self.clock.monotonic_ms() - self.refused_ms >= RECOVERED_AFTER_MS:
            log.info("messages are accepted again")
            self.refused_ms = -1
        return 0


cdef object reject(list staged, list callbacks, str remark):
    """Reject all replies of the batch: nothing was stored."""
    cdef Pending waiting
    for waiting in staged:
        waiting.reject(remark)
    for _, then in callbacks:
        run_isolated(then, False)


def run_isolated(callback, *arguments):
    """Log the exception of a callback, so that all others still run."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("%r failed", callback)
