"""QueueSelector: which queue the next message goes to: one after the other, not to the broker that just failed.

With latency faults, brokers that were slow or failed are passed over for a while. Loop thread.
"""

import random
from collections.abc import Callable

from firearrow.client.base.message import MessageQueue
from firearrow.client.remoting.routes import PublishInfo
from firearrow.client.sending.latency_faults import LatencyFaultTolerance

COUNT_MAX = 0x7FFFFFFF


class QueueSelector:
    """Each topic has a counter of its own, which begins anywhere, so that clients do not walk in step."""

    def __init__(self, faults: LatencyFaultTolerance | None = None) -> None:
        self.faults = faults
        self._counts: dict[str, int] = {}

    def choose(self, info: PublishInfo, avoid: str | None = None) -> MessageQueue:
        """The next queue; not at broker `avoid` if there is another. `info` has at least one queue."""
        queues = info.queues
        if avoid is None and self.faults is None:
            return queues[self._next(info.topic) % len(queues)]
        if avoid is not None and self.faults is not None:
            self._counts.pop(
                info.topic, None
            )  # begin anywhere again: a walk in step would find the same neighbours
        if avoid is not None and len(info.brokers) < 2:
            avoid = None
        for fits in self._filters(avoid):
            for _ in queues:
                queue = queues[self._next(info.topic) % len(queues)]
                if fits(queue.broker_name):
                    return queue
        return queues[self._next(info.topic) % len(queues)]

    def _filters(self, avoid: str | None) -> list[Callable[[str], bool]]:
        """What a broker must be, the best first."""
        faults = self.faults
        if faults is None:
            return [lambda broker: broker != avoid]
        return [
            lambda broker: broker != avoid and faults.available(broker),
            lambda broker: broker != avoid and faults.reachable(broker),
            lambda broker: broker != avoid,
        ]

    def _next(self, topic: str) -> int:
        count = self._counts.get(topic)
        count = random.randrange(COUNT_MAX) if count is None else (count + 1) & COUNT_MAX
        self._counts[topic] = count
        return count
