"""Turn: messages staged in one pass of the loop become durable together, then their answers go. Loop thread.

Order: handlers stage and park while the ready sockets are read; `_end` runs behind them (call_soon), writes once, and
lets the answers go. Under SYNC_FLUSH the answers, and the news of the queues, wait until the flusher has synced past
them: nobody sees a message that a crash can take back.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.store.store import MessageStore, StoreError
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock
from firearrow.broker.peer import Peer

log = logging.getLogger("firearrow.turn")

Queue = tuple[str, int]


class Parked(NamedTuple):
    end: int
    queue: Queue
    peer: Peer | None
    answer: RemotingCommand | None
    waits: bool
    since_ms: int


class Turn:
    """`news(queues)` hears which queues have messages that readers may see now; `sync_soon()` wakes the flusher."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        clock: Clock,
        *,
        sync_flush: bool,
        sync_timeout_ms: int,
        news: Callable[[set[Queue]], None],
        sync_soon: Callable[[], None],
        full: Callable[[Exception], str],
    ) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._sync_flush = sync_flush
        self._sync_timeout_ms = sync_timeout_ms
        self._news = news
        self._sync_soon = sync_soon
        self._full = full
        self._staged: list[Parked] = []
        self._unsynced: deque[Parked] = deque()
        self._planned = False
        self._refused = False
        self._settled = asyncio.Event()
        self._settled.set()

    def park(
        self, end: int, queue: Queue, peer: Peer | None, answer: RemotingCommand | None, *, waits: bool = True
    ) -> None:
        """Let `answer` go to `peer` once the log up to `end` is as durable as the flush mode promises.

        `waits=False` (the property WAIT=false): the answer does not wait for the disk; readers still do.
        """
        self._staged.append(Parked(end, queue, peer, answer, waits, self._clock.monotonic_ms()))
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """Write what is staged; runs once a pass of the loop."""
        self._planned = False
        staged, self._staged = self._staged, []
        try:
            self._store.write()
        except (OSError, StoreError) as error:
            self._note_refused(error)
            self._refuse(staged, self._full(error))
            return
        self._note_refused(None)
        if not self._sync_flush:
            self._let_go(staged)
            self._news({parked.queue for parked in staged})
            return
        for parked in staged:
            if not parked.waits:
                self._reply(parked)
        self._unsynced.extend(staged)
        self._settled.clear()
        self._sync_soon()

    def synced(self, physical_offset: int) -> None:
        """The disk holds the log up to here: show it to readers, let the answers go."""
        self._store.confirm(physical_offset)
        queues: set[Queue] = set()
        while self._unsynced and self._unsynced[0].end <= physical_offset:
            parked = self._unsynced.popleft()
            queues.add(parked.queue)
            if parked.waits:
                self._reply(parked)
        if queues:
            self._news(queues)
        self._note_settled()

    def sync_failed(self, remark: str) -> None:
        """The disk refused a sync: nothing that waits for it may be called stored."""
        waiting = [parked for parked in self._unsynced if parked.waits]
        self._unsynced.clear()
        self._refuse(waiting, remark)
        self._note_settled()

    def expire(self) -> None:
        """Answers that waited longer than syncFlushTimeout go out with FLUSH_DISK_TIMEOUT; their messages stay."""
        oldest = self._clock.monotonic_ms() - self._sync_timeout_ms
        for n, parked in enumerate(self._unsynced):
            if parked.since_ms > oldest:
                break
            if parked.waits and parked.answer is not None:
                parked.answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
                self._reply(parked)
                self._unsynced[n] = parked._replace(waits=False)

    async def settled(self) -> None:
        """Nothing waits for the disk any more."""
        await self._settled.wait()

    def _note_refused(self, error: Exception | None) -> None:
        """Say once that the disk refuses, and once that it takes again."""
        if error is not None and not self._refused:
            log.error("messages are refused, nothing can be stored: %s", error)
        elif error is None and self._refused:
            log.warning("messages are stored again")
        self._refused = error is not None

    def _note_settled(self) -> None:
        if not self._unsynced:
            self._settled.set()

    def _let_go(self, staged: list[Parked]) -> None:
        for parked in staged:
            self._reply(parked)

    def _reply(self, parked: Parked) -> None:
        if parked.peer is not None and parked.answer is not None and not parked.peer.closed:
            parked.peer.reply(parked.answer)

    def _refuse(self, staged: list[Parked], remark: str) -> None:
        for parked in staged:
            if parked.answer is not None and parked.peer is not None and not parked.peer.closed:
                refusal = parked.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
                parked.peer.reply(refusal)
