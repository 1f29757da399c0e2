"""Batches: which messages may share a request, and how large it may be.

Accumulator delays single sends for a moment and sends them as batches (`auto_batch`); a message that is
refused fails alone, the others of its batch are sent. Loop thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from firearrow._native.wire.message_properties import can_batch
from firearrow.client.base.errors import MessageRefused, RocketMQError
from firearrow.client.base.message import Message, MessageQueue, Property, SendResult
from firearrow.client.base.names import RETRY
from firearrow.client.base.options import ProducerOptions

ITEM_BYTES = 4 + 4 + 4 + 4 + 4 + 2
"""The size of an item without its body and properties."""
FIXED_BYTES = ITEM_BYTES + len("UNIQ_KEY") + 2 + len("WAIT") + 2 + len("false")
UNIQUE_ID_BYTES = 56
"""The longest id that we generate."""
PRIORITY_BYTES = len("_SYS_MSG_PRIORITY_") + 2 + 10


def check_batch(messages: Sequence[Message], anywhere: bool = True) -> None:
    """MessageRefused: the batch is empty, or its messages differ in what must be equal.

    `anywhere`: no queue was given. Then all messages must have the same sharding key, which selects the
    queue.
    """
    if not messages:
        raise MessageRefused("batch: it contains no message")
    first = messages[0]
    if first.topic.startswith(RETRY):
        raise MessageRefused("batch: messages to retry topics must be sent one by one")
    if can_batch(messages):
        return
    for message in messages:
        if message.topic != first.topic:
            raise MessageRefused(
                f"batch: topics {first.topic} and {message.topic}, but all messages must have the same topic"
            )
        if message.wait_store is not first.wait_store:
            raise MessageRefused("batch: all messages must have the same wait_store")
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            raise MessageRefused("batch: delayed messages must be sent one by one")
        if anywhere and message.sharding_key != first.sharding_key:
            raise MessageRefused(
                "batch: all messages must have the same sharding_key, or a queue must be given"
            )


def split(
    messages: Iterable[Message], bytes_max: int = 1 << 20, count_max: int = 4096
) -> Iterator[list[Message]]:
    """Split messages, in order, into batches of at most `bytes_max` and `count_max`.

    A message that is larger than `bytes_max` gets a separate list.
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
    """The size of the message in a batch; an upper bound while it has no unique id yet."""
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
        raise MessageRefused(f"{text!r} must be a str, not {type(text).__name__}")
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


SendBatch = Callable[[Sequence[Message], MessageQueue | None], asyncio.Future[SendResult]]
Key = tuple[str, MessageQueue | None, bool, str | None]


@dataclass(slots=True)
class _OpenBatch:
    loop: asyncio.AbstractEventLoop
    timer: asyncio.TimerHandle
    messages: list[Message] = field(default_factory=list)
    futures: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0

    def remove_cancelled(self) -> list[Message]:
        """Remove messages whose sends were cancelled before the batch was sent, and return them."""
        if not any(future.cancelled() for future in self.futures):
            return []
        pairs = list(zip(self.messages, self.futures, strict=True))
        self.messages = [message for message, future in pairs if not future.cancelled()]
        self.futures = [future for future in self.futures if not future.cancelled()]
        return [message for message, future in pairs if future.cancelled()]


class Accumulator:
    """Sends a batch when it is large or old enough, and accepts nothing while the open batches are too large.

    `send` returns the future of a batch's result, or raises. `release` gets the size of each body when its batch
    is over.
    """

    def __init__(self, options: ProducerOptions, send: SendBatch, release: Callable[[int], object]) -> None:
        self._options = options
        self._send = send
        self._release = release
        self._open_batches: dict[Key, _OpenBatch] = {}
        self.bytes = 0

    def accepts(self, message: Message) -> bool:
        """Whether the message may be batched and there is capacity; otherwise send it alone."""
        return (
            not message.topic.startswith(RETRY)
            and not message.delay_level
            and message.delay_s is None
            and message.deliver_at_ms is None
            and message.sharding_key is None
            and message.priority is None
            and len(message.body) < self._options.batch_bytes
            and Property.PRODUCER_GROUP not in message.properties
            and Property.CORRELATION_ID not in message.properties
            and self.bytes + len(message.body) <= self._options.batch_total_bytes
        )

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult]:
        """Add a message; the future of its own result, with its own offset and ids."""
        size = encoded_bytes(message)
        key = (message.topic, queue, message.wait_store, message.tags)
        batch = self._open_batches.get(key)
        if batch is None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._options.batch_delay_s, self._flush, key)
            batch = self._open_batches[key] = _OpenBatch(loop, timer)
        future: asyncio.Future[SendResult] = batch.loop.create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size += size
        self.bytes += size
        if batch.size >= self._options.batch_bytes:
            self._flush(key)
        return future

    def flush(self) -> None:
        """Send all open batches now."""
        for key in list(self._open_batches):
            self._flush(key)

    def _flush(self, key: Key) -> None:
        batch = self._open_batches.pop(key)
        batch.timer.cancel()
        for message in batch.remove_cancelled():
            self._release(len(message.body))
        if not batch.messages:
            self.bytes -= batch.size
            return
        try:
            sent = self._send(batch.messages, key[1])
        except MessageRefused as error:
            if len(batch.messages) > 1:
                self._flush_one_by_one(batch, key)
            else:
                self._failed(batch, error)
        except RocketMQError as error:
            self._failed(batch, error)
        else:
            sent.add_done_callback(lambda done: self._sent(batch, done))

    def _flush_one_by_one(self, batch: _OpenBatch, key: Key) -> None:
        """Some message makes the batch invalid: send each alone."""
        self.bytes -= batch.size
        for message, future in zip(batch.messages, batch.futures, strict=True):
            alone = _OpenBatch(batch.loop, batch.timer, [message], [future], encoded_bytes(message))
            self.bytes += alone.size
            self._open_batches[key] = alone
            self._flush(key)

    def _over(self, batch: _OpenBatch) -> None:
        """After the results: a close that waits for the last release reports the failures that were counted."""
        self.bytes -= batch.size
        for message in batch.messages:
            self._release(len(message.body))

    def _failed(self, batch: _OpenBatch, error: BaseException) -> None:
        for future in batch.futures:
            if not future.done():
                future.set_exception(error)
        self._over(batch)

    def _sent(self, batch: _OpenBatch, done: asyncio.Future[SendResult]) -> None:
        error = done.exception()
        if error is not None:
            self._failed(batch, error)
            return
        whole = done.result()
        offset_ids = whole.offset_message_id.split(",")
        if len(offset_ids) != len(batch.messages):
            offset_ids = [""] * len(batch.messages)
        numbered = enumerate(offset_ids, whole.queue_offset)
        for message, future, (offset, offset_id) in zip(batch.messages, batch.futures, numbered, strict=True):
            if not future.done():
                future.set_result(_result_of(whole, message, offset_id, offset))
        self._over(batch)


def _result_of(whole: SendResult, message: Message, offset_message_id: str, queue_offset: int) -> SendResult:
    """The result of one message of a batch. Called for each: cheaper than `_replace`."""
    return SendResult(
        whole.status,
        message.unique_id or "",
        offset_message_id,
        whole.queue,
        queue_offset,
        whole.transaction_id,
        whole.recall_handle,
        whole.region,
        whole.trace_on,
    )
