"""SendBack: returns a failed message to its broker, for redelivery or as a dead letter.

ProcessQueues and offsets stay as they are: the caller keeps the message until a broker has it. Event loop
only.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import RocketMQError, check
from firearrow.client.base.message import Message, Property
from firearrow.client.base.names import Namespace
from firearrow.client.remoting.routes import LOGICAL_BROKER

log = logging.getLogger("firearrow.client")

TIMEOUT_S = 5.0
RECONSUME_MAX = 16
ORDERLY_RECONSUME_MAX = (1 << 31) - 1
FIRST_DELAY_LEVEL = 3
NOT_COPIED = frozenset(
    {
        Property.TRANSACTION_PREPARED,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.TAGS,
        Property.KEYS,
        Property.DELAY,
        Property.WAIT,
        Property.UNIQUE_KEY,
    }
)
"""The message is no longer a half message; the offsets belong to its pull; the others are fields of Message.
"""


class Caller(Protocol):
    """The part of ClientInstance that SendBack needs."""

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand: ...
    async def call_master(
        self, broker_name: str, command: RemotingCommand, timeout_s: float, *, topic: str | None = None
    ) -> RemotingCommand: ...


class SendBack:
    """`group` as brokers know it. `publish(message)` sends an ordinary message and raises if that fails."""

    def __init__(
        self,
        *,
        group: str,
        max_reconsume_times: int,
        caller: Caller,
        publish: Callable[[Message], Awaitable[object]],
        namespace: Namespace | None = None,
    ) -> None:
        self._group = group
        self.max_reconsume_times = max_reconsume_times
        self._caller = caller
        self._publish = publish
        self._namespace = namespace or Namespace(None)

    async def back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Send it back to its broker; if that fails, publish it to the retry topic. False: both failed.

        `delay_level` 0: the broker chooses, -1: dead letter. If published, only the count matters, as in
        Java.
        """
        if not message.broker_name.startswith(LOGICAL_BROKER):
            try:
                await request_send_back(
                    self._caller,
                    self._group,
                    message,
                    self._namespace.wrap(message.topic),
                    delay_level=delay_level,
                    max_reconsume_times=self.max_reconsume_times,
                )
                return True
            except RocketMQError as error:
                log.info("%r could not be sent back to %s: %s", message, message.broker_name, error)
            except Exception:
                log.exception("%r could not be sent back to %s", message, message.broker_name)
        return await self.publish(message)

    async def publish(self, message: ReceivedMessage) -> bool:
        """Send it as a new message to the group's retry topic. False: that failed; the error is logged."""
        try:
            await self._publish(self.as_retry(message))
        except Exception:
            log.exception("%r could not be sent to the retry topic of group %s", message, self._group)
            return False
        return True

    def as_retry(self, message: ReceivedMessage) -> Message:
        """The message for the retry topic. It keeps the unique id and the user's properties."""
        properties = {name: value for name, value in message.properties.items() if name not in NOT_COPIED}
        origin = properties.get(Property.ORIGIN_MESSAGE_ID, "")
        properties[Property.ORIGIN_MESSAGE_ID] = origin if origin.strip() else message.message_id
        properties[Property.RETRY_TOPIC] = self._namespace.wrap(message.topic)
        properties[Property.RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[Property.MAX_RECONSUME_TIMES] = str(self.max_reconsume_times)
        return Message(
            retry_topic(self._group),
            message.body,
            tags=message.tags,
            keys=message.keys,
            properties=properties,
            delay_level=FIRST_DELAY_LEVEL + message.reconsume_times,
            flag=message.flag,
            wait_store=message.get_property(Property.WAIT) != "false",
            unique_id=message.get_property(Property.UNIQUE_KEY),
        )


async def request_send_back(
    caller: Caller,
    group: str,
    message: ReceivedMessage,
    topic: str,
    *,
    delay_level: int,
    max_reconsume_times: int,
) -> None:
    """Ask the message's broker to take it back. Names as brokers know them. BrokerError, TransportError."""
    fields = {
        "offset": str(message.physical_offset),
        "group": group,
        "delayLevel": str(delay_level),
        "originMsgId": message.message_id,
        "originTopic": topic,
        "unitMode": "false",
        "maxReconsumeTimes": str(max_reconsume_times),
        "bname": message.broker_name,
    }
    request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    if message.broker_name:
        await caller.call_master(message.broker_name, request, TIMEOUT_S, topic=topic)
    else:
        check(await caller.call(message.store_host, request, TIMEOUT_S), message.store_host)
