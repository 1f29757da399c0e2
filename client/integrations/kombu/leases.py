"""Leases: popped messages that a worker works on: renews their invisible time, acknowledges them or gives them back.

Loop thread only, except that any thread may carry a Lease about.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import NotRunning, RocketMQError
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.kombu.envelope import RawMessage

log = logging.getLogger("firearrow.client")

BATCH = 32
"""Acknowledgements of one request, and renewals at a time."""
RETRY_S = 1.0
AT_ONCE_S = 0.001
"""The invisible time of a message that is given back."""


class Window:
    """How many messages a channel may have: kombu's prefetch count, 0 for UNLIMITED_MAX. Loop thread only."""

    UNLIMITED_MAX = 1000

    def __init__(self) -> None:
        self.limit = 0
        self.held = 0
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        return max((self.limit or self.UNLIMITED_MAX) - self.held, 0)

    def take(self, count: int) -> None:
        self.held += count

    def release(self, count: int = 1) -> None:
        self.held -= count
        self._changed.set()

    def resize(self, limit: int) -> None:
        self.limit = limit
        self._changed.set()

    async def wait(self) -> None:
        """Until a message may be taken."""
        while not self.free:
            self._changed.clear()
            await self._changed.wait()


class Lease:
    """One delivery. `window` counts it until it is settled."""

    __slots__ = ("consumer", "message", "raw", "renewing", "visible_at_s", "window")

    def __init__(
        self, consumer: PopConsumer, message: ReceivedMessage, window: Window | None, visible_at_s: float
    ) -> None:
        self.consumer = consumer
        self.message = message
        self.raw: RawMessage = {}
        """The message of kombu, once it was admitted."""
        self.window = window
        self.visible_at_s = visible_at_s
        self.renewing: asyncio.Future[None] | None = None


class Leases:
    def __init__(self, visible_s: float) -> None:
        self._visible_s = visible_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Lease] = set()
        self._done: list[Lease] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._failing = StateLog(
            log,
            "group %s: acknowledgements reach brokers again, after %d failures",
            self._loop.time,
            quiet_s=FAILING_S,
        )
        self._renewals = self._loop.create_task(self._renew_all())

    # ---- one message ----

    def open(
        self, consumer: PopConsumer, message: ReceivedMessage, window: Window | None, popped_s: float
    ) -> Lease:
        """`popped_s`: the loop's time before the pop."""
        lease = Lease(consumer, message, window, popped_s + self._visible_s)
        self._open.add(lease)
        return lease

    def ack(self, lease: Lease) -> None:
        """The message is done; brokers learn it soon, many with one request."""
        if self._settle(lease):
            self._done.append(lease)
            if self._flushing is None:
                self._flushing = self.spawn(self._flush())

    def give_back(self, lease: Lease) -> None:
        """Make it visible to all workers at once; this counts as a delivery."""
        self._finish(lease, lambda: lease.consumer.change_invisible(lease.message, AT_ONCE_S))

    def dead_letter(self, lease: Lease) -> None:
        self._finish(lease, lambda: lease.consumer.dead_letter(lease.message))

    def _finish(self, lease: Lease, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._settle(lease):
            self.spawn(self._until_done(lease, work))

    def _settle(self, lease: Lease) -> bool:
        """False: it was settled before."""
        if lease not in self._open:
            return False
        self._open.discard(lease)
        if lease.window is not None:
            lease.window.release()
        return True

    # ---- brokers ----

    async def _flush(self) -> None:
        try:
            while self._done:
                batch, self._done = self._done[:BATCH], self._done[BATCH:]
                for lease in batch:
                    await _renewed(lease)
                by_consumer: dict[PopConsumer, list[Lease]] = {}
                for lease in batch:
                    by_consumer.setdefault(lease.consumer, []).append(lease)
                for consumer, leases in by_consumer.items():
                    try:
                        await consumer.ack_batch([lease.message for lease in leases])
                        self._failing.is_absent(consumer.group)
                    except RocketMQError as error:
                        await self._put_back(leases, error)
        finally:
            self._flushing = None

    async def _put_back(self, leases: list[Lease], error: RocketMQError) -> None:
        now = self._loop.time()
        late = [lease for lease in leases if lease.visible_at_s < now or isinstance(error, NotRunning)]
        self._done += [lease for lease in leases if lease not in late]
        group = leases[0].consumer.group
        self._failing.is_there(group, "group %s: %d acknowledgements failed: %s", group, len(leases), error)
        if late:
            log.warning("%d messages could not be acknowledged in time and come again: %s", len(late), error)
        if self._done:
            await asyncio.sleep(RETRY_S)

    async def _until_done(self, lease: Lease, work: Callable[[], Awaitable[None]]) -> None:
        """Otherwise the message becomes visible when its time is over."""
        await _renewed(lease)
        while True:
            try:
                return await work()
            except RocketMQError as error:
                if isinstance(error, NotRunning) or self._loop.time() + RETRY_S > lease.visible_at_s:
                    log.info("%r becomes visible later: %s", lease.message, error)
                    return
            await asyncio.sleep(RETRY_S)

    async def _renew_all(self) -> None:
        limit = asyncio.Semaphore(BATCH)
        while True:
            await asyncio.sleep(self._visible_s / 6)
            soon = self._loop.time() + self._visible_s * 2 / 3
            due = [lease for lease in self._open if lease.visible_at_s < soon]
            await asyncio.gather(*(self._renew(lease, limit) for lease in due))

    async def _renew(self, lease: Lease, limit: asyncio.Semaphore) -> None:
        async with limit:
            if lease not in self._open:
                return
            lease.renewing = self._loop.create_future()
            try:
                now = self._loop.time()
                await lease.consumer.change_invisible(lease.message, self._visible_s)
                lease.visible_at_s = now + self._visible_s
            except RocketMQError as error:
                log.info("the invisible time of %r was not renewed: %s", lease.message, error)
            finally:
                lease.renewing.set_result(None)
                lease.renewing = None

    # ---- tasks ----

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("kombu's transport: unexpected error", exc_info=error)

    async def settled(self, timeout_s: float) -> None:
        """Until brokers have all acknowledgements, at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        tasks = [self._renewals, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _renewed(lease: Lease) -> None:
    """A renewal makes a new receipt handle: the old one acknowledges nothing then."""
    if lease.renewing is not None:
        await lease.renewing
