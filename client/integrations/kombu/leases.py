"""Leases: popped messages that a worker works on. They are acknowledged, given back, or become dead letters.

The consumer keeps them invisible until then (`auto_renew`). Loop thread only, except that any thread may carry a Lease
about.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import NotRunning, RocketMQError
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.kombu.envelope import RawMessage

log = logging.getLogger("firearrow.client")

BATCH = 32
"""Acknowledgements of one request."""
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
    """One delivery. `window` counts it until it is settled; `raw` is kombu's message, once it was admitted."""

    __slots__ = ("consumer", "message", "raw", "window")

    def __init__(self, consumer: PopConsumer, message: ReceivedMessage, window: Window | None) -> None:
        self.consumer = consumer
        self.message = message
        self.window = window
        self.raw: RawMessage = {}


class Leases:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: set[Lease] = set()
        self._done: list[Lease] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._failing = StateLog(
            log,
            "group %s: messages are settled again, after %d failures",
            self._loop.time,
            quiet_s=FAILING_S,
        )

    # ---- one message ----

    def open(self, consumer: PopConsumer, message: ReceivedMessage, window: Window | None) -> Lease:
        lease = Lease(consumer, message, window)
        self._open.add(lease)
        return lease

    def ack(self, lease: Lease) -> None:
        """The message is done; brokers learn it soon, many with one request."""
        if self._settle(lease):
            self._done.append(lease)
            if not self._flushing:
                self._flushing = True
                self.spawn(self._flush())

    def give_back(self, lease: Lease) -> None:
        """Make it visible to all workers at once; this counts as a delivery."""
        if self._settle(lease):
            self.spawn(
                self._until_done([lease], lambda: lease.consumer.change_invisible(lease.message, AT_ONCE_S))
            )

    def dead_letter(self, lease: Lease, why: object) -> None:
        if self._settle(lease):
            log.warning("%r is a dead letter of group %s: %s", lease.message, lease.consumer.group, why)
            self.spawn(self._until_done([lease], lambda: lease.consumer.dead_letter(lease.message)))

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
                by_consumer: dict[PopConsumer, list[Lease]] = {}
                for lease in batch:
                    by_consumer.setdefault(lease.consumer, []).append(lease)
                await asyncio.gather(*(self._ack(*item) for item in by_consumer.items()))
        finally:
            self._flushing = False

    async def _ack(self, consumer: PopConsumer, leases: list[Lease]) -> None:
        await self._until_done(leases, lambda: consumer.ack_batch([lease.message for lease in leases]))

    async def _until_done(self, leases: list[Lease], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Try again while the consumer keeps the messages. `work` is for those that are left in `leases`."""
        consumer = leases[0].consumer
        group = consumer.group
        while leases:
            try:
                await work()
                return self._failing.is_absent(group)
            except RocketMQError as error:
                self._failing.is_there(
                    group, "group %s: %d messages are not settled yet: %s", group, len(leases), error
                )
                if isinstance(error, NotRunning):
                    log.info("%s: %d messages were not settled and come again", group, len(leases))
                    return
            await asyncio.sleep(RETRY_S)
            kept = [lease for lease in leases if consumer.running and consumer.holds(lease.message)]
            if len(kept) < len(leases):
                log.info(
                    "%s: %d messages come again, they were not settled in time",
                    group,
                    len(leases) - len(kept),
                )
            leases[:] = kept

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
        """Until brokers know what became of all messages, at most `timeout_s`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
