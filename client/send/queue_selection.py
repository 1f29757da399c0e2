"""Queue selection: which queue a message goes to, and which errors are retried.

Selectors choose a queue by the message's content; they are plain functions, and users can write their own.
QueueSelector takes the queues round robin, but not at the broker that just failed; with fault tolerance it
avoids slow and failed brokers for a time. Loop thread.
"""

import random
from collections.abc import Callable, Sequence

from firearrow._native.base.hash import java_hash
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    MessageRefused,
    TooManyRequests,
    TransportError,
    access_hint,
)
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.remoting.routes import PublishInfo
from firearrow.client.send.fault_strategy import LatencyFaultTolerance

OLD_ROUTE_CODES = frozenset(
    {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY, ResponseCode.TOPIC_NOT_EXIST}
)
"""What a broker answers that is fenced or a slave, or lost a topic."""

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Called with all writable queues and the message; returns one of the queues."""


def by_hash(key: str) -> Selector:
    """Equal keys select the same queue, the one that Java's client selects for a String."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[hash_index(key, len(queues))]

    return select


def by_random(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Java's SelectMessageQueueByRandom: any of the queues."""
    return random.choice(queues)


def hash_index(key: str, count: int) -> int:
    """Java's arithmetic: the absolute value of a remainder that has the sign of the hash."""
    return abs(java_hash(key)) % count


def target(
    message: Message, queue: MessageQueue | None, selector: Selector | None, namespace: Namespace
) -> tuple[MessageQueue | None, Selector | None]:
    """(queue by its name at the brokers, selector): at most one is set. A sharding key acts as a selector.

    MessageRefused: the queue belongs to another topic.
    """
    if queue is None:
        if selector is None and message.sharding_key is not None:
            return None, by_hash(message.sharding_key)
        return None, selector
    if queue.topic != message.topic:
        raise MessageRefused(
            f"the queue belongs to topic {queue.topic}, the message to topic {message.topic}"
        )
    if not namespace.name:
        return queue, None
    return MessageQueue(namespace.wrap(queue.topic), queue.broker_name, queue.queue_id), None


COUNT_MAX = 0x7FFFFFFF


class QueueSelector:
    """Round robin with one counter per topic.

    It starts at a random value, so that clients do not move in step. `is_silent(broker name)`: it leaves requests
    unanswered, and is chosen only if all do.
    """

    def __init__(
        self,
        faults: LatencyFaultTolerance | None = None,
        is_silent: Callable[[str], bool] = lambda broker: False,
    ) -> None:
        self.faults = faults
        self.is_silent = is_silent
        self._counts: dict[str, int] = {}

    def choose(self, info: PublishInfo, avoid: str | None = None) -> MessageQueue:
        """The next queue, not at broker `avoid` if there is another broker. `info` has at least one queue."""
        queues = info.queues
        if avoid is None and self.faults is None:
            for _ in queues:
                queue = queues[self._next(info.topic) % len(queues)]
                if not self.is_silent(queue.broker_name):
                    break
            return queue
        if avoid is not None and self.faults is not None:
            # a new random start: clients that retry in step would all choose the same next broker
            self._counts.pop(info.topic, None)
        if avoid is not None and len(info.brokers) < 2:
            avoid = None
        for fits in self._filters(avoid):
            for _ in queues:
                queue = queues[self._next(info.topic) % len(queues)]
                if fits(queue.broker_name):
                    return queue
        return queues[self._next(info.topic) % len(queues)]

    def has_other(self, info: PublishInfo, broker: str) -> bool:
        """Whether another broker of the topic may answer if this one does not."""
        return any(name != broker and not self.is_silent(name) for name in info.brokers)

    def _filters(self, avoid: str | None) -> list[Callable[[str], bool]]:
        """Conditions on the broker, the strictest first."""
        faults, is_silent = self.faults, self.is_silent
        if faults is None:
            return [
                lambda broker: broker != avoid and not is_silent(broker),
                lambda broker: broker != avoid,
            ]
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
    """The rule of `send`: retry all client errors, and broker errors with one of these codes."""

    def retries(error: BaseException) -> bool:
        return error.code in codes if isinstance(error, BrokerError) else isinstance(error, ClientError)

    return retries


def is_transport_error(error: BaseException) -> bool:
    """The rule of `submit`: retry only if no broker answered."""
    return isinstance(error, TransportError) and not isinstance(error, TooManyRequests)


def means_old_route(error: BaseException) -> bool:
    """Whether the broker may not be the one for this queue any more: it has stopped, is fenced or a slave, does not
    know the topic, or has fewer queues. Java's client waits for its timer then, 30 s.
    """
    if not isinstance(error, BrokerError):
        return isinstance(error, ConnectFailed | ConnectionLost)
    if no_such_queue(error):
        return True
    if error.code == ResponseCode.NO_PERMISSION:
        return not access_hint(error.code, error.remark)
    return error.code in OLD_ROUTE_CODES


def is_not_master(error: BaseException) -> bool:
    """Whether a broker refused a message because another one is, or becomes, the master: `submit` tries again."""
    if not isinstance(error, BrokerError):
        return False
    if error.code == ResponseCode.SYSTEM_BUSY:
        return error.remark.startswith("[REJECTREQUEST]")  # a slave's
    return error.code == ResponseCode.SERVICE_NOT_AVAILABLE or (
        error.code == ResponseCode.NO_PERMISSION and means_old_route(error)
    )


def no_such_queue(error: BaseException) -> bool:
    """Whether the topic has fewer queues now. INVALID_PARAMETER: brokers of 5.x; SYSTEM_ERROR: of 4.x."""
    return (
        isinstance(error, BrokerError)
        and error.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
        and error.remark.startswith("request queueId[")
    )


def never_retry(error: BaseException) -> bool:
    """The rule of one-way messages."""
    return False


def same_queue(queue: MessageQueue, brokers: Sequence[str], targets: Sequence[MessageQueue]) -> MessageQueue:
    """The one of `targets`, at least one, that gets the messages of a queue elsewhere, so that they keep their order:
    at the broker of the same name if it has the topic, else at one in turn; with the same id if there is one, else
    id % count. `brokers`: of all queues elsewhere."""
    names = sorted({each.broker_name for each in targets})
    known = queue.broker_name in names
    name = queue.broker_name if known else names[brokers.index(queue.broker_name) % len(names)]
    at_broker = sorted(each for each in targets if each.broker_name == name)
    same = [each for each in at_broker if each.queue_id == queue.queue_id]
    return same[0] if same else at_broker[queue.queue_id % len(at_broker)]
