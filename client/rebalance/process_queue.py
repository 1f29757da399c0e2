"""ProcessQueue: what was pulled of one queue and is not finished; its counters, and when it was last pulled and locked.

`_order` holds the waiting offsets ascending; what is gone from `_messages` may linger in it until it comes to an end.
Messages taken in order lie in `_taken` until they are committed or put back. Event loop only; nothing here waits.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from firearrow._native.store.log.received_message import ReceivedMessage

LOCK_LIFE_S = 30
PULL_IDLE_S = 120
NONE = -1
"""What `remove` and `commit` say when no offset comes out."""


class ProcessQueue:
    """All times are those of `clock`, seconds, which only grows."""

    __slots__ = (
        "_clock", "_half", "_messages", "_order", "_taken", "_waiting", "backlog", "consume_lock",
        "consuming", "dropped", "last_consume_s", "last_lock_s", "last_pop_s", "last_pull_s", "locked",
        "message_bytes", "newest_offset", "try_unlock_times", "unacknowledged",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        self._taken: dict[int, ReceivedMessage] = {}
        self._waiting: asyncio.Future[None] | None = None
        self._half = 0
        self.message_bytes = 0
        """Sum of the bodies as stored, taken ones included."""
        self.newest_offset = 0
        self.backlog = 0
        """Messages that the broker has beyond the newest one pulled, as last told."""
        self.dropped = False
        """Once true never false: what comes out of its messages counts no more."""
        self.consuming = False
        """In order only: somebody works on this queue and looks for new messages himself."""
        self.consume_lock = asyncio.Lock()
        """In order only: held while a handler runs, and by whoever gives the queue away."""
        self.locked = False
        self.try_unlock_times = 0
        self.unacknowledged = 0
        """POP only: messages that were popped and are neither acknowledged nor postponed."""
        self.last_pull_s = self.last_pop_s = self.last_consume_s = self.last_lock_s = clock()

    def put(self, messages: Sequence[ReceivedMessage], broker_max: int = 0) -> bool:
        """Take in what was pulled; true if, in order, somebody must begin to work on it. Known offsets are passed over.

        `broker_max`: the queue's end at the broker, as the answer told it.
        """
        mine, order, ascending, size = self._messages, self._order, True, 0
        last = order[-1] if order else NONE
        for message in messages:
            offset = message.queue_offset
            if offset in mine:
                continue
            mine[offset] = message
            size += message.body_bytes
            ascending = ascending and offset > last
            order.append(offset)
            last = offset
            self.newest_offset = offset
        self.message_bytes += size
        if not ascending:
            self._sort()
        if messages and (backlog := broker_max - messages[-1].queue_offset) > 0:
            self.backlog = backlog
        if not mine or self.consuming:
            return False
        self.consuming = True
        return True

    def remove(self, messages: Sequence[ReceivedMessage]) -> int:
        """Forget finished messages. The offset to commit: the lowest unfinished one, or NONE if nothing was here."""
        self.last_consume_s = self._clock()
        mine = self._messages
        if not mine:
            return NONE
        size = 0
        for message in messages:
            gone = mine.pop(message.queue_offset, None)
            if gone is not None:
                size += gone.body_bytes
        self.message_bytes -= size
        if self._waiting is not None:
            self._wake()
        if mine:
            return self._first()
        self._order.clear()
        return self.newest_offset + 1

    def take(self, count: int) -> list[ReceivedMessage]:
        """In order: the lowest ones, until they are committed or put back. None left: nobody works here any more."""
        self.last_consume_s = self._clock()
        taken = []
        for _ in range(min(count, len(self._messages))):
            offset = self._first()
            message = self._messages.pop(offset)
            self._taken[offset] = message
            taken.append(message)
        if not taken:
            self.consuming = False
        return taken

    def commit(self) -> int:
        """Forget what was taken. The offset after it, or NONE if nothing was taken."""
        if not self._taken:
            return NONE
        after = max(self._taken) + 1
        self.message_bytes -= sum(message.body_bytes for message in self._taken.values())
        self._taken.clear()
        self._wake()
        return after

    def rollback(self) -> None:
        """Put back all that was taken."""
        self._messages.update(self._taken)
        self._taken.clear()
        self._sort()

    def make_to_consume_again(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put back just these."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._messages[message.queue_offset] = message
        self._sort()

    async def half_done(self, within_s: float) -> None:
        """Until half of what is here now is finished, at most so long. For one at a time."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        self._half = self.message_count // 2
        timer = loop.call_later(within_s, _end, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting = None

    def contains(self, message: ReceivedMessage) -> bool:
        """Waits here still, the very object."""
        return self._messages.get(message.queue_offset) is message

    def head(self) -> ReceivedMessage | None:
        """The waiting message with the lowest offset."""
        return self._messages[self._first()] if self._messages else None

    @property
    def message_count(self) -> int:
        return len(self._messages) + len(self._taken)

    @property
    def has_messages(self) -> bool:
        """Some wait; taken ones do not count."""
        return bool(self._messages)

    def waiting_range(self) -> tuple[int, int] | None:
        """Lowest and highest offset that wait."""
        return (self._first(), self._last()) if self._messages else None

    @property
    def taken_count(self) -> int:
        return len(self._taken)

    def taken_range(self) -> tuple[int, int] | None:
        return (min(self._taken), max(self._taken)) if self._taken else None

    def max_span(self) -> int:
        """Offsets between the lowest and the highest that wait, however few messages lie between."""
        return self._last() - self._first() if self._messages else 0

    def clear(self) -> None:
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.message_bytes = self.newest_offset = 0
        self._wake()

    def lock_expired(self, now_s: float) -> bool:
        return now_s - self.last_lock_s > LOCK_LIFE_S

    def pull_expired(self, now_s: float) -> bool:
        return now_s - self.last_pull_s > PULL_IDLE_S

    def _first(self) -> int:
        order, mine = self._order, self._messages
        while order[0] not in mine:
            order.popleft()
        return order[0]

    def _last(self) -> int:
        order, mine = self._order, self._messages
        while order[-1] not in mine:
            order.pop()
        return order[-1]

    def _sort(self) -> None:
        self._order = deque(sorted(self._messages))

    def _wake(self) -> None:
        if self._waiting is not None and self.message_count <= self._half:
            _end(self._waiting)


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
