"""Turn: messages staged in one pass of the loop become durable together, then their answers go. Loop thread.

Order: handlers stage and park while the ready sockets are read; `end` runs behind them (call_soon), writes once, and
lets the answers go. Under SYNC_FLUSH the answers, and the news of the queues, wait until the flusher has synced past
them: nobody sees a message that a crash can take back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firearrow._native.store.store import MessageStore, StoreError
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock, Plans
from firearrow.broker.peer import Peer

log = logging.getLogger("firearrow.turn")

Queue = tuple[str, int]

STEADY_MS = 1000
"""How long nothing is refused before the log says that the disk takes messages again."""


class Journal(Protocol):
    """What was noted before the records that it speaks of (life/journal)."""

    @property
    def has_promises(self) -> bool: ...
    def sync(self) -> None: ...
    def cancel(self, written: int) -> None: ...


class Waiting(Protocol):
    """What waits for the turn's write, and for the sync behind it: one answer, or a run of them (_native/path/run).

    `late` answers wait for the disk under SYNC_FLUSH, `early` ones do not.
    """

    @property
    def end(self) -> int: ...
    @property
    def since_ms(self) -> int: ...
    @property
    def queues(self) -> set[Queue]: ...
    def let_go(self) -> None: ...
    def let_go_early(self) -> None: ...
    def let_go_late(self) -> None: ...
    def refuse(self, remark: str) -> None: ...
    def refuse_late(self, remark: str) -> None: ...
    def expire(self) -> None:
        """The late ones learn that the disk takes too long, and are gone then."""


class Run(Waiting, Protocol):
    def close(self) -> None:
        """Nothing more comes to it."""


@dataclass(slots=True)
class Parked:
    """One answer."""

    end: int
    queue: Queue
    peer: Peer | None
    answer: RemotingCommand | None
    waits: bool
    since_ms: int

    @property
    def queues(self) -> set[Queue]:
        return {self.queue}

    def let_go(self) -> None:
        if self.peer is not None and self.answer is not None and not self.peer.closed:
            self.peer.reply(self.answer)

    def let_go_early(self) -> None:
        if not self.waits:
            self.let_go()

    def let_go_late(self) -> None:
        if self.waits:
            self.let_go()

    def refuse(self, remark: str) -> None:
        if self.answer is not None:
            self.answer = self.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            self.let_go()

    def refuse_late(self, remark: str) -> None:
        if self.waits:
            self.refuse(remark)

    def expire(self) -> None:
        if self.waits and self.answer is not None:
            self.answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            self.let_go()
            self.waits = False


class Turn:
    """`news(queues)` hears which queues have messages that readers may see now; `sync_soon()` wakes the flusher."""

    def __init__(
        self,
        plans: Plans,
        store: MessageStore,
        clock: Clock,
        *,
        sync_flush: bool,
        sync_timeout_ms: int,
        news: Callable[[set[Queue]], None],
        sync_soon: Callable[[], None],
        full: Callable[[Exception], str],
        journal: Journal,
    ) -> None:
        self._plans = plans
        self._store = store
        self._clock = clock
        self._sync_flush = sync_flush
        self._sync_timeout_ms = sync_timeout_ms
        self._news = news
        self._sync_soon = sync_soon
        self._full = full
        self._journal = journal
        self._before: list[Callable[[], None]] = []
        self._following: list[tuple[int, Callable[[bool], None]]] = []
        self._unsynced_following: deque[tuple[int, Callable[[bool], None]]] = deque()
        self._staged: list[Waiting] = []
        self._run: Run | None = None
        self._unsynced: deque[Waiting] = deque()
        self._planned = False
        self._stopped: str | None = None
        self._refused_ms: int | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    def park(
        self, end: int, queue: Queue, peer: Peer | None, answer: RemotingCommand | None, *, waits: bool = True
    ) -> None:
        """Let `answer` go to `peer` once the log up to `end` is as durable as the flush mode promises.

        `waits=False` (the property WAIT=false): the answer does not wait for the disk; readers still do.
        """
        self._close_run()
        self._staged.append(Parked(end, queue, peer, answer, waits, self._clock.monotonic_ms()))
        if not self._planned:
            self._plan()

    def join(self, run: Run) -> None:
        """Hold the run; answers come to it until another one is parked or the turn ends."""
        self._close_run()
        self._run = run
        self._staged.append(run)
        if not self._planned:
            self._plan()

    def follow(self, end: int, then: Callable[[bool], None]) -> None:
        """Call `then(stored)` when the log up to `end` is as durable as the flush mode promises, or was not written."""
        self._following.append((end, then))

    def before(self, callback: Callable[[], None]) -> None:
        """Call it once, right before this turn's write; it may put and park."""
        self._before.append(callback)
        if not self._planned:
            self._plan()

    def _plan(self) -> None:
        self._planned = True
        self._plans.call_soon(self.end)

    def end(self) -> None:
        """Write what is staged; runs once a pass of the loop."""
        while self._before:
            self._before.pop(0)()
        self._planned = False
        self._close_run()
        staged, self._staged = self._staged, []
        following, self._following = self._following, []
        if self._sync_flush and self._journal.has_promises:
            self._sync_journal()
        try:
            self._store.write()
        except (OSError, StoreError) as error:
            self._note_refused(error)
            self._journal.cancel(self._store.written)
            return _refuse(staged, following, self._full(error))
        if self._refused_ms is not None:
            self._note_stored(self._refused_ms)
        if not self._sync_flush:
            for waiting in staged:
                waiting.let_go()
            for _, then in following:
                then(True)
            self._news(_queues(staged))
            return None
        self._unsynced_following.extend(following)
        for waiting in staged:
            waiting.let_go_early()
        self._unsynced.extend(staged)
        self._settled.clear()
        if self._stopped is not None:  # the flusher gave up while this turn gathered
            return self.sync_failed(self._stopped)
        self._sync_soon()
        return None

    def synced(self, physical_offset: int) -> None:
        """The disk holds the log up to here: show it to readers, let the answers go."""
        self._store.confirm(physical_offset)
        queues: set[Queue] = set()
        while self._unsynced and self._unsynced[0].end <= physical_offset:
            waiting = self._unsynced.popleft()
            queues.update(waiting.queues)
            waiting.let_go_late()
        while self._unsynced_following and self._unsynced_following[0][0] <= physical_offset:
            self._unsynced_following.popleft()[1](True)
        if queues:
            self._news(queues)
        self._note_settled()

    def sync_failed(self, remark: str) -> None:
        """The disk refused a sync, and is not asked again: nothing that waits for it may be called stored."""
        self._stopped = remark
        while self._unsynced:
            self._unsynced.popleft().refuse_late(remark)
        while self._unsynced_following:
            self._unsynced_following.popleft()[1](False)
        self._note_settled()

    def expire(self) -> None:
        """Answers that waited longer than syncFlushTimeout go out with FLUSH_DISK_TIMEOUT; their messages stay."""
        oldest = self._clock.monotonic_ms() - self._sync_timeout_ms
        for waiting in self._unsynced:
            if waiting.since_ms > oldest:
                break
            waiting.expire()

    async def settled(self) -> None:
        """Nothing waits for the disk any more."""
        await self._settled.wait()

    def _note_refused(self, error: Exception) -> None:
        """Say once that the disk refuses."""
        if self._refused_ms is None:
            log.error("messages are refused, nothing can be stored: %s", error)
        self._refused_ms = self._clock.monotonic_ms()

    def _note_stored(self, refused_ms: int) -> None:
        """Say once that the disk takes again, and not each time that a small message finds the last room."""
        if self._clock.monotonic_ms() - refused_ms >= STEADY_MS:
            log.warning("messages are stored again")
            self._refused_ms = None

    def _sync_journal(self) -> None:
        """What is noted must not come to the disk after its record: a power cut between would repeat it."""
        try:
            self._journal.sync()
        except OSError:  # it has said so; messages go on, and a power cut may repeat what was delivered
            pass

    def _note_settled(self) -> None:
        if not self._unsynced:
            self._settled.set()

    def _close_run(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None


def _queues(staged: list[Waiting]) -> set[Queue]:
    """There may be hundreds, mostly in one run: not copied then."""
    return staged[0].queues if len(staged) == 1 else set().union(*(waiting.queues for waiting in staged))


def _refuse(staged: list[Waiting], following: list[tuple[int, Callable[[bool], None]]], remark: str) -> None:
    """Nothing of the turn was stored."""
    for waiting in staged:
        waiting.refuse(remark)
    for _, then in following:
        then(False)
