"""Batches: messages that travel and are stored as one request. What may go together, and how many."""

from collections.abc import Iterable, Iterator, Sequence

from firearrow.client.errors import MessageRefused
from firearrow.client.message import Message
from firearrow.client.names import RETRY

ITEM_BYTES = 4 + 4 + 4 + 4 + 4 + 2
"""What an item has besides its body and properties."""
UNIQUE_ID_BYTES = 32 + 10


def check_batch(messages: Sequence[Message]) -> None:
    """MessageRefused: empty, or not alike in what a batch must be alike in."""
    if not messages:
        raise MessageRefused("batch: no message")
    first = messages[0]
    if first.topic.startswith(RETRY):
        raise MessageRefused("batch: not for retry topics")
    for message in messages:
        if message.topic != first.topic:
            raise MessageRefused(f"batch: topics {first.topic} and {message.topic}; one is wanted")
        if message.wait_store is not first.wait_store:
            raise MessageRefused("batch: wait_store must be the same for all")
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            raise MessageRefused("batch: not for delayed messages")


def split(
    messages: Iterable[Message], bytes_max: int = 1 << 20, count_max: int = 4096
) -> Iterator[list[Message]]:
    """Lists that each fit into one batch of at most `bytes_max`, in the order given.

    A message that is larger alone is a list of its own.
    """
    batch: list[Message] = []
    size = 0
    for message in messages:
        own = encoded_bytes(message)
        if batch and (size + own > bytes_max or len(batch) >= count_max):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch


def encoded_bytes(message: Message) -> int:
    """At most what the message takes in a batch."""
    size = ITEM_BYTES + len(message.body) + UNIQUE_ID_BYTES + 16
    size += sum(4 * (len(name) + len(value)) + 2 for name, value in message.properties.items())
    if message.tags:
        size += 4 * len(message.tags) + 6
    if message.keys:
        size += sum(4 * len(key) + 1 for key in message.keys) + 6
    if message.sharding_key:
        size += 4 * len(message.sharding_key) + 16
    return size
