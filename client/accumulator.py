"""Accumulator: single sends that are held back a moment and leave together as batches (auto_batch). Loop thread."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firearrow.client.batch import encoded_bytes
from firearrow.client.message import Message, MessageQueue, Property, SendResult
from firearrow.client.names import RETRY
from firearrow.client.options import ProducerOptions

SendBatch = Callable[[Sequence[Message], MessageQueue | None], asyncio.Future[SendResult]]
Key = tuple[str, MessageQueue | None, bool, str | None]


@dataclass(slots=True)
class _Gathering:
    timer: asyncio.TimerHandle
    messages: list[Message] = field(default_factory=list)
    futures: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size: int = 0


class Accumulator:
    """A batch leaves when it is large or old enough; when all together hold too much, messages go by themselves."""

    def __init__(self, options: ProducerOptions, send: SendBatch) -> None:
        self._options = options
        self._send = send
        self._gathering: dict[Key, _Gathering] = {}
        self.bytes = 0

    def takes(self, message: Message) -> bool:
        """What may not be in a batch, or finds no room, does not wait here."""
        return (
            not message.topic.startswith(RETRY)
            and not message.delay_level
            and message.delay_s is None
            and message.deliver_at_ms is None
            and Property.PRODUCER_GROUP not in message.properties
            and Property.CORRELATION_ID not in message.properties
            and self.bytes + len(message.body) <= self._options.batch_total_bytes
        )

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult]:
        """Its own result: its place in the queue, its ids."""
        loop = asyncio.get_running_loop()
        key = (message.topic, queue, message.wait_store, message.tags)
        gathering = self._gathering.get(key)
        if gathering is None:
            timer = loop.call_later(self._options.batch_delay_s, self._flush, key)
            gathering = self._gathering[key] = _Gathering(timer)
        future: asyncio.Future[SendResult] = loop.create_future()
        size = encoded_bytes(message)
        gathering.messages.append(message)
        gathering.futures.append(future)
        gathering.size += size
        self.bytes += size
        if gathering.size >= self._options.batch_bytes:
            self._flush(key)
        return future

    def flush(self) -> None:
        """Let all that waits leave now."""
        for key in list(self._gathering):
            self._flush(key)

    def _flush(self, key: Key) -> None:
        gathering = self._gathering.pop(key)
        gathering.timer.cancel()
        try:
            sent = self._send(gathering.messages, key[1])
        except Exception as error:
            self.bytes -= gathering.size
            for future in gathering.futures:
                if not future.done():
                    future.set_exception(error)
            return
        sent.add_done_callback(lambda done: self._sent(gathering, done))

    def _sent(self, gathering: _Gathering, done: asyncio.Future[SendResult]) -> None:
        self.bytes -= gathering.size
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            for future in gathering.futures:
                if not future.done():
                    future.set_exception(error)
            return
        whole = done.result()
        places = whole.offset_message_id.split(",")
        for number, (message, future) in enumerate(zip(gathering.messages, gathering.futures, strict=True)):
            if not future.done():
                future.set_result(
                    whole._replace(
                        message_id=message.unique_id or "",
                        offset_message_id=places[number] if len(places) == len(gathering.messages) else "",
                        queue_offset=whole.queue_offset + number,
                    )
                )
