"""Turn: messages staged in one pass of the loop become durable together (see turn.pxd)."""

import asyncio
import logging
from collections import deque

from firearrow._native.path.parked cimport Parked

from firearrow._native.store.store import StoreError

log = logging.getLogger("firearrow.turn")

STEADY_MS = 1000


cdef class Turn:
    def __init__(
        self, plans, MessageStore store not None, Clock clock not None, *, int64_t sync_timeout_ms, News news not None,
        sync_soon, full, journal,
    ):
        self.plans = plans
        self.store = store
        self.clock = clock
        self.sync_flush = store.sync_flush
        self.sync_timeout_ms = sync_timeout_ms
        self.news = news
        self.sync_soon = sync_soon
        self.full = full
        self.journal = journal
        self.refused_ms = -1
        self.preparing, self.staged, self.following = [], [], []
        self.unsynced, self.unsynced_following = deque(), deque()
        self.settling = asyncio.Event()
        self.settling.set()

    # ---- staging ----

    def park(self, int64_t end, tuple queue not None, peer, answer, *, bint waits=True):
        cdef Parked parked = Parked.__new__(Parked)
        parked.end, parked.queue, parked.peer, parked.answer = end, queue, peer, answer
        parked.waits, parked.since_ms = waits, self.clock.monotonic_ms()
        self.hold(parked)

    cdef int join(self, Run run) except -1:
        """It accepts answers until another one is parked or the turn ends."""
        self.hold(run)
        self.run = run
        return 0

    cdef int hold(self, Waiting waiting) except -1:
        self.close_run()
        self.staged.append(waiting)
        return self.plan()

    def follow(self, int64_t end, then):
        self.following.append((end, then))

    def before(self, callback):
        self.preparing.append(callback)
        self.plan()

    cdef int plan(self) except -1:
        if not self.planned:
            self.plans.call_soon(self.end)
            self.planned = True
        return 0

    cdef int close_run(self) except -1:
        if self.run is not None:
            self.run.closed = True
            self.run = None
        return 0

    # ---- its end ----

    def end(self):
        cdef Waiting waiting
        cdef list staged, following
        while self.preparing:
            alone(self.preparing.pop(0))
        self.planned = False
        self.close_run()
        try:
            staged, self.staged, following, self.following = self.staged, [], self.following, []
        except MemoryError:
            self.plan()                       # end it with the next turn
            raise
        if self.sync_flush and self.journal.has_promises:
            self.sync_journal()
        try:
            self.store.write()
        except (OSError, StoreError, MemoryError) as error:
            self.journal.cancel(self.store.written)
            refuse(staged, following, self.full(error))
            return self.note_refused(error)
        if self.sync_flush:
            self.await_sync(staged, following)
        else:
            for waiting in staged:
                waiting.let_go()
            for _, then in following:
                alone(then, True)
            self.tell(staged)
        if self.refused_ms >= 0:
            self.note_stored()

    cdef int tell(self, list settled) except -1:
        """Notify readers of their queues."""
        cdef list queues = []
        cdef Waiting waiting
        cdef bint heard = self.news.somebody_waits()
        for waiting in settled:
            if heard or not waiting.plain:
                waiting.name_queues(queues)
        return self.news.tell(queues)

    # ---- the disk ----

    cdef int await_sync(self, list staged, list following) except -1:
        cdef Waiting waiting
        self.unsynced_following.extend(following)
        for waiting in staged:
            waiting.let_go_early()
        self.unsynced.extend(staged)
        self.settling.clear()
        if self.stopped is not None:          # the flusher stopped during this turn
            self.sync_failed(self.stopped)
        else:
            self.sync_soon()
        return 0

    def synced(self, int64_t physical_offset):
        cdef list settled = []
        self.store.confirm(physical_offset)
        while self.unsynced and (<Waiting> self.unsynced[0]).end <= physical_offset:
            settled.append(self.unsynced.popleft())
            (<Waiting> settled[-1]).let_go_late()
        while self.unsynced_following and self.unsynced_following[0][0] <= physical_offset:
            alone(self.unsynced_following.popleft()[1], True)
        if settled:
            self.tell(settled)
        self.note_settled()

    def sync_failed(self, str remark not None):
        self.stopped = remark
        while self.unsynced:
            (<Waiting> self.unsynced.popleft()).refuse_late(remark)
        while self.unsynced_following:
            alone(self.unsynced_following.popleft()[1], False)
        self.note_settled()

    def set_sync_timeout(self, int64_t timeout_ms):
        self.sync_timeout_ms = timeout_ms

    def expire(self):
        cdef Waiting waiting
        cdef int64_t oldest = self.clock.monotonic_ms() - self.sync_timeout_ms
        for waiting in self.unsynced:
            if waiting.since_ms > oldest:
                break
            waiting.expire()

    async def settled(self):
        await self.settling.wait()

    cdef int note_settled(self) except -1:
        if not self.unsynced:
            self.settling.set()
        return 0

    cdef int sync_journal(self) except -1:
        """A journal entry must reach the disk before its record: a power cut in between would repeat the
        delivery."""
        try:
            self.journal.sync()
        # the journal logged it; continue, although a power cut may repeat deliveries
        except OSError:
            pass
        return 0

    # ---- log lines ----

    cdef int note_refused(self, error) except -1:
        """Log once that the disk refuses writes."""
        if self.refused_ms < 0:
            log.error("messages are refused, nothing can be stored: %s", str(error) or "no memory")
        self.refused_ms = self.clock.monotonic_ms()
        return 0

    cdef int note_stored(self) except -1:
        """Log once that the disk takes messages again, not after each small message that still fits."""
        if self.clock.monotonic_ms() - self.refused_ms >= STEADY_MS:
            log.warning("messages are stored again")
            self.refused_ms = -1
        return 0


cdef object refuse(list staged, list following, str remark):
    """Refuse all answers of the turn: nothing was stored."""
    cdef Waiting waiting
    for waiting in staged:
        waiting.refuse(remark)
    for _, then in following:
        alone(then, False)


def alone(callback, *arguments):
    """Log the exception of a callback, so that the turn ends for all others."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("%r failed", callback)
