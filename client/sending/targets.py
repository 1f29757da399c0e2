"""Where a message must go: one queue, a queue that somebody chooses, or anywhere."""

from firearrow.client.base.errors import MessageRefused
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.names import Namespace
from firearrow.client.sending.selectors import Selector, by_hash


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
