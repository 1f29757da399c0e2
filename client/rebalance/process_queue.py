"""ProcessQueue: the messages pulled from one queue and not finished.

It has their counters as well, and the times of the last pull, pop, lock and consumption. Event loop only.

`_order` has the waiting offsets ascending; an offset removed from `_messages` stays in it until it is at an
end. Messages taken for an orderly handler are in `_taken` until they are committed or put back.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from firearrow._native.store.log.received_message import ReceivedMessage

LOCK_LIFE_S = 30
PULL_IDLE_S = 120
NONE = -1
"""What `remove` and `commit` return if there is no offset to commit."""


class ProcessQueue:
    """All times are seconds of `clock`, which is monotonic."""

    __slots__ = (
        "_clock",
        "_half",
        "_half_waiter",
        "_messages",
        "_order",
        "_taken",
        "backlog",
        "consume_lock",
        "consuming",
        "dropped",
        "last_consume_s",
        "last_lock_s",
        "last_pop_s",
        "last_pull_s",
        "locked",
        "message_bytes",
        "newest_offset",
        "passed",
        "try_unlock_times",
        "unacknowledged",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        self._taken: dict[int, ReceivedMessage] = {}
        self._half_waiter: asyncio.Future[None] | None = None
        self._half = 0
        self.message_bytes = 0
        """Sum of the bodies as stored, taken ones included."""
        self.newest_offset = 0
        self.passed = 0
        """The offset up to which was pulled. What is missing before it was filtered out, and counts as finished."""
        self.backlog = 0
        """Messages at the broker after the newest one pulled, according to its last answer."""
        self.dropped = False
        """Once true, it stays true: results of its messages are ignored."""
        self.consuming = False
        """Orderly only: a worker consumes this queue and finds new messages itself."""
        self.consume_lock = asyncio.Lock()
        """Orderly only: held while a handler runs and while the queue is released."""
        self.locked = False
        self.try_unlock_times = 0
        self.unacknowledged = 0
        """POP only: messages that were popped and are neither acknowledged nor postponed."""
        self.last_pull_s = self.last_pop_s = self.last_consume_s = self.last_lock_s = clock()

    def put(self, messages: Sequence[ReceivedMessage], broker_max: int = 0) -> bool:
        """Add pulled messages; known offsets are skipped. Returns whether an orderly worker must start.

        `broker_max`: the queue's next offset at the broker, from the answer.
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
        """Remove finished messages.

        Returns the offset to commit: the lowest unfinished one, or NONE if none was here.
        """
        self.last_consume_s = self._clock()
        mine = self._messages
        if not mine:
            return NONE
        size = 0
        for message in messages:
            removed = mine.pop(message.queue_offset, None)
            if removed is not None:
                size += removed.body_bytes
        self.message_bytes -= size
        if self._half_waiter is not None:
            self._wake_if_half_done()
        if mine:
            return self._first()
        self._order.clear()
        return max(self.newest_offset + 1, self.passed)

    def take(self, count: int) -> list[ReceivedMessage]:
        """Orderly: the messages with the lowest offsets, until they are committed or put back.

        If none is left, `consuming` becomes false and the worker must stop.
        """
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
        """Remove the taken messages. Returns the offset after them, or NONE if nothing was taken."""
        if not self._taken:
            return NONE
        after = max(self._taken) + 1
        if not self._messages:
            after = max(after, self.passed)
        self.message_bytes -= sum(message.body_bytes for message in self._taken.values())
        self._taken.clear()
        self._wake_if_half_done()
        return after

    def rollback(self) -> None:
        """Put back all that was taken."""
        self._messages.update(self._taken)
        self._taken.clear()
        self._sort()

    def make_to_consume_again(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put back these taken messages."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._messages[message.queue_offset] = message
        self._sort()

    async def half_done(self, within_s: float) -> None:
        """Wait until half of the present messages are finished, at most `within_s`. One caller at a time."""
        loop = asyncio.get_running_loop()
        waiter = self._half_waiter = loop.create_future()
        self._half = self.message_count // 2
        timer = loop.call_later(within_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._half_waiter = None

    def contains(self, message: ReceivedMessage) -> bool:
        """Whether this very object still waits here."""
        return self._messages.get(message.queue_offset) is message

    def head(self) -> ReceivedMessage | None:
        """The waiting message with the lowest offset."""
        return self._messages[self._first()] if self._messages else None

    @property
    def message_count(self) -> int:
        return len(self._messages) + len(self._taken)

    @property
    def has_messages(self) -> bool:
        """Whether messages wait; taken ones do not count."""
        return bool(self._messages)

    def waiting_range(self) -> tuple[int, int] | None:
        """Lowest and highest waiting offset."""
        return (self._first(), self._last()) if self._messages else None

    @property
    def taken_count(self) -> int:
        return len(self._taken)

    def taken_range(self) -> tuple[int, int] | None:
        return (min(self._taken), max(self._taken)) if self._taken else None

    def max_span(self) -> int:
        """Distance from the lowest to the highest waiting offset, even if few messages are between."""
        return self._last() - self._first() if self._messages else 0

    def clear(self) -> None:
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.message_bytes = self.newest_offset = self.passed = 0
        self._wake_if_half_done()

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

    def _wake_if_half_done(self) -> None:
        if self._half_waiter is not None and self.message_count <= self._half:
            _wake(self._half_waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
