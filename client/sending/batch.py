"""Batches: messages that travel and are stored as one request. What may go together, and how many."""

from collections.abc import Iterable, Iterator, Sequence

from firearrow._native.wire.message_properties import alike
from firearrow.client.base.errors import MessageRefused
from firearrow.client.base.message import Message
from firearrow.client.base.names import RETRY

ITEM_BYTES = 4 + 4 + 4 + 4 + 4 + 2
"""What an item has besides its body and properties."""
FIXED_BYTES = ITEM_BYTES + len("UNIQ_KEY") + 2 + len("WAIT") + 2 + len("false")
UNIQUE_ID_BYTES = 56
"""The longest that we make."""
PRIORITY_BYTES = len("_SYS_MSG_PRIORITY_") + 2 + 10


def check_batch(messages: Sequence[Message], anywhere: bool = True) -> None:
    """MessageRefused: empty, or not alike in what a batch must be alike in.

    A batch that may go `anywhere` goes where its one sharding key says, if there is one.
    """
    if not messages:
        raise MessageRefused("batch: no message")
    first = messages[0]
    if first.topic.startswith(RETRY):
        raise MessageRefused("batch: not for retry topics")
    if alike(messages):
        return
    for message in messages:
        if message.topic != first.topic:
            raise MessageRefused(f"batch: topics {first.topic} and {message.topic}; one is wanted")
        if message.wait_store is not first.wait_store:
            raise MessageRefused("batch: wait_store must be the same for all")
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            raise MessageRefused("batch: not for delayed messages")
        if anywhere and message.sharding_key != first.sharding_key:
            raise MessageRefused("batch: one sharding_key is wanted for all, or a queue")


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
    """What the message takes in a batch; a little more while it has no unique id yet."""
    size = FIXED_BYTES + len(message.body)
    size += UNIQUE_ID_BYTES if message.unique_id is None else _utf8_bytes(message.unique_id)
    for name, value in message.properties.items():
        size += _utf8_bytes(name) + _utf8_bytes(value) + 2
    if message.tags is not None:
        size += _utf8_bytes(message.tags) + 6
    if message.keys:
        size += sum(_utf8_bytes(key) + 1 for key in message.keys) + 5
    if message.sharding_key is not None:
        size += _utf8_bytes(message.sharding_key) + 15
    if message.priority is not None:
        size += PRIORITY_BYTES
    return size


def _utf8_bytes(text: str) -> int:
    if not isinstance(text, str):
        raise MessageRefused(f"{text!r}: a str is wanted, not {type(text).__name__}")
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
