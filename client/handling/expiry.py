"""Expiry: a message at the head of its queue that a handler keeps for too long is sent back, so that others can pass.

Never stops the handler: what it answers in the end counts no more. Event loop only.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.rebalance.process_queue import ProcessQueue

log = logging.getLogger("firearrow.client")

SWEEP_MAX = 16
DELAY_LEVEL = 3


class ExpiredMessageCleaner:
    """`began(process_queue, message)`: when a handler was given the message (monotonic seconds), None: none has it.

    `send_back(message, delay_level)` says whether the broker has it now.
    """

    def __init__(
        self,
        *,
        queues: Callable[[], Iterable[ProcessQueue]],
        began: Callable[[ProcessQueue, ReceivedMessage], float | None],
        send_back: Callable[[ReceivedMessage, int], Awaitable[bool]],
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._queues = queues
        self._began = began
        self._send_back = send_back
        self._timeout_s = timeout_s
        self._clock = clock

    async def sweep(self) -> None:
        """Once over all queues; of each at most 16 messages."""
        for process_queue in list(self._queues()):
            await self._clean(process_queue)

    async def _clean(self, process_queue: ProcessQueue) -> None:
        for _ in range(min(process_queue.message_count, SWEEP_MAX)):
            head = process_queue.head()
            if head is None or process_queue.dropped or not self._expired(process_queue, head):
                return
            if await self._send_back(head, DELAY_LEVEL) and process_queue.head() is head:
                log.info("%r was sent back: its handler runs for over %.0f s", head, self._timeout_s)
                process_queue.remove([head])

    def _expired(self, process_queue: ProcessQueue, head: ReceivedMessage) -> bool:
        began = self._began(process_queue, head)
        return began is not None and self._clock() - began > self._timeout_s
