"""RocketMQFastProducer: encodes what is published and sends it by a Producer; ReplyPublisher sends replies."""

import logging
from collections.abc import Mapping
from typing import Any

from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import AsyncCallable, CustomCallable
from faststream.exceptions import IncorrectState, RejectMessage
from faststream.response import PublishCommand

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.errors import (
    BrokerError,
    MessageRefused,
    RequestReplyTimeout,
    RequestTimeout,
    RocketMQError,
)
from firearrow.client.base.message import Message, SendResult
from firearrow.client.integrations.faststream.message import SYSTEM_PROPERTIES, RocketMQParser
from firearrow.client.integrations.faststream.response import RocketMQPublishCommand
from firearrow.client.send.batch import split
from firearrow.client.send.producer import Producer
from firearrow.client.send.request_reply import reply_message

log = logging.getLogger("firearrow.client")


class RocketMQFastProducer(ProducerProto[RocketMQPublishCommand]):
    """Between `connect` and `disconnect` it sends by the given Producer."""

    _parser: AsyncCallable
    _decoder: AsyncCallable

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        default = RocketMQParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self._producer: Producer | None = None
        self.serializer: SerializerProto | None = None
        self.codec: CodecProto = DefaultCodec()

    def __bool__(self) -> bool:
        return self._producer is not None

    def connect(
        self, producer: Producer, serializer: SerializerProto | None, codec: CodecProto | None
    ) -> None:
        self._producer = producer
        self.serializer = serializer
        self.codec = codec or DefaultCodec()

    async def disconnect(self) -> None:
        """Messages in flight are sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def publish(self, cmd: RocketMQPublishCommand) -> SendResult:
        return await self._connected().send(await self._message(cmd))

    async def publish_batch(self, cmd: RocketMQPublishCommand) -> list[SendResult]:
        """One result for each request: large batches need several."""
        producer = self._connected()
        messages = await self._batch(cmd)
        limit = producer.options.message_bytes_max
        return [await producer.send_batch(batch) for batch in split(messages, min(limit, BATCH_BYTES))]

    async def request(self, cmd: RocketMQPublishCommand) -> ReceivedMessage:
        """TimeoutError: no reply came in time."""
        producer, message = self._connected(), await self._message(cmd)
        try:
            return await producer.request(message, timeout_s=cmd.timeout)
        except (RequestReplyTimeout, RequestTimeout) as error:
            raise TimeoutError(str(error)) from error

    async def _message(self, cmd: RocketMQPublishCommand) -> Message:
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        return message_of(cmd, body, content_type)

    async def _batch(self, cmd: RocketMQPublishCommand) -> list[Message]:
        if isinstance(self.codec, BatchCodecProto):
            encoded = await self.codec.encode_batch(cmd.batch_bodies, self.serializer)
        else:
            encoded = [await self.codec.encode(body, self.serializer) for body in cmd.batch_bodies]
        return [message_of(cmd, body, content_type) for body, content_type in encoded]

    def _connected(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("The broker is not connected: call `connect` or `start` first.")
        return self._producer


BATCH_BYTES = 1 << 20
"""Most bytes of a batch in one request."""


def message_of(cmd: RocketMQPublishCommand, body: bytes, content_type: str | None) -> Message:
    """The message to send, or the reply. MessageRefused."""
    properties = properties_of({"content-type": content_type, **cmd.headers_to_publish()})
    if cmd.request is None:
        return Message(cmd.destination, body, properties=properties, **cmd.options)
    reply = reply_message(cmd.request, body)
    reply.properties |= properties
    return reply


def properties_of(headers: Mapping[str, Any]) -> dict[str, str]:
    """Headers without a value are left out: RocketMQ has no empty properties.

    MessageRefused: a name has a meaning in RocketMQ.
    """
    if reserved := sorted(SYSTEM_PROPERTIES & headers.keys()):
        raise MessageRefused(f"headers: {reserved[0]} is reserved for RocketMQ, choose another name")
    return {name: str(value) for name, value in headers.items() if value is not None and value != ""}


class ReplyPublisher(FakePublisher):
    """Sends a handler's result to the `reply_to` topic, or to the client that made the `request`."""

    __slots__ = ("_request", "_topic")

    def __init__(self, producer: ProducerProto[Any], topic: str, request: ReceivedMessage | None) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketMQPublishCommand:
        reply = RocketMQPublishCommand.from_cmd(super().patch_command(cmd))
        reply.destination = self._topic
        reply.request = self._request
        return reply

    async def _publish(self, cmd: PublishCommand, **middlewares: Any) -> Any:
        """The handler has not failed if its asker does not wait any more.

        The sender chose where the reply goes: if it cannot be sent there, the message is a dead letter at once, and
        the handler is not called again.
        """
        try:
            return await super()._publish(cmd, **middlewares)
        except MessageRefused as error:
            raise self._rejected(error) from error
        except BrokerError as error:
            if self._request is None and error.code == ResponseCode.NO_PERMISSION:
                raise self._rejected(error) from error
            if self._request is None:
                raise
            log.info("the reply to %r was not delivered: %s", self._request, error)
            return None

    def _rejected(self, error: RocketMQError) -> RejectMessage:
        log.info("the reply to topic %.80r cannot be sent: %s", self._topic, error)
        return RejectMessage()
