"""Leases: popped messages that a worker works on. They are acknowledged, given back, or become dead letters.

Loop thread only, except that any thread may carry a Lease about.
"""

import asyncio
import logging

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.integrations.kombu.envelope import RawMessage
from firearrow.client.integrations.settlement import Settlement

log = logging.getLogger("firearrow.client")

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

    __slots__ = ("message", "raw", "settlement", "window")

    def __init__(self, settlement: Settlement, message: ReceivedMessage, window: Window | None) -> None:
        self.settlement = settlement
        self.message = message
        self.window = window
        self.raw: RawMessage = {}


class Leases:
    def __init__(self) -> None:
        self._open: set[Lease] = set()

    def open(self, settlement: Settlement, message: ReceivedMessage, window: Window | None) -> Lease:
        lease = Lease(settlement, message, window)
        self._open.add(lease)
        return lease

    def ack(self, lease: Lease) -> None:
        """The message is done; brokers learn it soon, many with one request."""
        if self._close(lease):
            lease.settlement.ack_soon(lease.message)

    def give_back(self, lease: Lease) -> None:
        """Make it visible to all workers at once; this counts as a delivery."""
        if self._close(lease):
            lease.settlement.spawn(lease.settlement.release(lease.message, AT_ONCE_S))

    def dead_letter(self, lease: Lease, why: object) -> None:
        if self._close(lease):
            group = lease.settlement.consumer.group
            log.warning("%r is a dead letter of group %s: %s", lease.message, group, why)
            lease.settlement.spawn(lease.settlement.dead_letter(lease.message))

    def _close(self, lease: Lease) -> bool:
        """False: it was settled before."""
        if lease not in self._open:
            return False
        self._open.discard(lease)
        if lease.window is not None:
            lease.window.release()
        return True
