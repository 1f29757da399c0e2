"""RocketMQMessage: a received message, or a batch of them, and the parser that makes it."""

from collections.abc import Sequence
from typing import Any, Protocol

from faststream.message import StreamMessage, decode_message

from firearrow._native.protocol.name_rules import BROKER_OWN, RETRIED
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Property

SYSTEM_PROPERTIES = frozenset(value for name, value in vars(Property).items() if not name.startswith("_")) | (
    BROKER_OWN | RETRIED
)
"""Properties that have a meaning in RocketMQ: they are not headers."""
OF_REQUESTS = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL, Property.CLUSTER)

RawMessage = ReceivedMessage | tuple[ReceivedMessage, ...]
"""A batch subscriber gets a tuple."""


class Acknowledger(Protocol):
    """Settles messages at their broker. RocketMQError: they are redelivered."""

    async def ack(self, messages: Sequence[ReceivedMessage], /) -> None: ...
    async def nack(self, messages: Sequence[ReceivedMessage], delay_s: float | None, /) -> None: ...
    async def reject(self, messages: Sequence[ReceivedMessage], /) -> None: ...


class NoAcknowledger:
    """Of replies, and of messages of a test's broker."""

    async def ack(self, messages: Sequence[ReceivedMessage]) -> None: ...
    async def nack(self, messages: Sequence[ReceivedMessage], delay_s: float | None) -> None: ...
    async def reject(self, messages: Sequence[ReceivedMessage]) -> None: ...


class RocketMQMessage(StreamMessage[RawMessage]):
    """A message is settled once; further calls have no effect."""

    def __init__(self, *args: Any, acknowledger: Acknowledger, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._acknowledger = acknowledger

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """The received messages, also of a single one."""
        return self.raw_message if isinstance(self.raw_message, tuple) else (self.raw_message,)

    async def ack(self) -> None:
        """The message is done."""
        if self.committed is None:
            await self._acknowledger.ack(self.messages)
        await super().ack()

    async def nack(self, delay_s: float | None = None) -> None:
        """Redeliver after a delay. A message that was redelivered too often becomes a dead letter instead."""
        if self.committed is None:
            await self._acknowledger.nack(self.messages, delay_s)
        await super().nack()

    async def reject(self) -> None:
        """Do not redeliver: the message goes to the dead-letter topic of the group."""
        if self.committed is None:
            await self._acknowledger.reject(self.messages)
        await super().reject()


class RocketMQParser:
    """`acknowledger` is set when the subscriber starts."""

    def __init__(self) -> None:
        self.acknowledger: Acknowledger = NoAcknowledger()

    async def parse_message(self, message: ReceivedMessage) -> RocketMQMessage:
        return self._parsed(message, (message,), message.body)

    async def parse_batch(self, message: tuple[ReceivedMessage, ...]) -> RocketMQMessage:
        return self._parsed(message, message, [one.body for one in message])

    async def decode_message(self, msg: StreamMessage[Any]) -> Any:
        return decode_message(msg)

    async def decode_batch(self, msg: StreamMessage[Any]) -> list[Any]:
        return [decode_message(await self.parse_message(one)) for one in msg.raw_message]

    def _parsed(self, raw: RawMessage, messages: Sequence[ReceivedMessage], body: Any) -> RocketMQMessage:
        first = messages[0]
        headers = [_headers(message) for message in messages]
        return RocketMQMessage(
            raw_message=raw,
            body=body,
            headers=headers[0],
            batch_headers=headers if raw is messages else [],
            reply_to=headers[0].get("reply_to") or _asker(first),
            content_type=headers[0].get("content-type"),
            correlation_id=headers[0].get("correlation_id") or first.get_property(Property.CORRELATION_ID),
            message_id=first.message_id,
            acknowledger=self.acknowledger,
        )


def _headers(message: ReceivedMessage) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name not in SYSTEM_PROPERTIES}


def is_request(message: ReceivedMessage) -> bool:
    """Whether it can be replied to by RocketMQ's request and reply."""
    is_reply = message.get_property(Property.MESSAGE_TYPE) is not None
    return not is_reply and all(message.get_property(name) for name in OF_REQUESTS)


def _asker(message: ReceivedMessage) -> str:
    return message.get_property(Property.REPLY_TO_CLIENT, "") or "" if is_request(message) else ""
