"""Where a message must go: one queue, a queue that somebody chooses, or anywhere.

Selectors: which queue a message goes to, by its own content. Plain functions; users write their own the same way.

QueueSelector: which queue the next message goes to: one after the other, not to the broker that just failed.

With latency faults, brokers that were slow or failed are passed over for a while. Loop thread.

Which failures are worth another try, by whether the caller waits (`send`) or not (`submit`).
"""

import random
from collections.abc import Callable, Sequence

from firearrow._native.base.hash import java_hash
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    MessageRefused,
    TooManyRequests,
    TransportError,
)
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.remoting.routes import PublishInfo
from firearrow.client.send.fault_strategy import LatencyFaultTolerance

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Given all queues that can be written to, and the message."""


def by_hash(key: str) -> Selector:
    """Equal keys go to the same queue, the one that Java's client chooses for a String."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[hash_index(key, len(queues))]

    return select


def by_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return random.choice(queues)


def hash_index(key: str, count: int) -> int:
    """Java's arithmetic: the remainder has the sign of the hash; then its absolute value."""
    return abs(java_hash(key)) % count


def target(
    message: Message, queue: MessageQueue | None, selector: Selector | None, namespace: Namespace
) -> tuple[MessageQueue | None, Selector | None]:
    """The queue by its name at the brokers, or who chooses, by the sharding key if nobody else; or neither.

    MessageRefused: the queue is another topic's.
    """
    if queue is None:
        if selector is None and message.sharding_key is not None:
            return None, by_hash(message.sharding_key)
        return None, selector
    if queue.topic != message.topic:
        raise MessageRefused(f"queue of topic {queue.topic}, message of topic {message.topic}")
    if not namespace.name:
        return queue, None
    return MessageQueue(namespace.wrap(queue.topic), queue.broker_name, queue.queue_id), None


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


def retry_on_other_broker(codes: frozenset[int]) -> Callable[[BaseException], bool]:
    """The rule of `send`: anything but refusals of brokers that would be the same elsewhere."""

    def retries(error: BaseException) -> bool:
        return error.code in codes if isinstance(error, BrokerError) else isinstance(error, ClientError)

    return retries


def is_transport_error(error: BaseException) -> bool:
    """The rule of `submit`: only what no broker answered."""
    return isinstance(error, TransportError) and not isinstance(error, TooManyRequests)


def never_retry(error: BaseException) -> bool:
    """The rule of one-way messages."""
    return False
