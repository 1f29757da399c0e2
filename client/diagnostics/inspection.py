"""Handles requests of operators to consumers: reset (220) and report (221) offsets, running info (307).

Finds the consumer by its group and answers as Java does. Knows consumers only by the Protocols here. Event
loop only.
"""

import logging
from typing import Protocol, runtime_checkable

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.diagnostics.reset_offsets import ResetRequest
from firearrow.client.remoting.client_instance import ClientInstance

log = logging.getLogger("firearrow.client")


@runtime_checkable
class InspectableConsumer(Protocol):
    """A consumer that reports its state."""

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets in memory of one topic, or of all topics if `topic` is empty."""

    async def running_info(self, *, stacks: bool) -> dict[str, object]: ...


@runtime_checkable
class ResettableConsumer(Protocol):
    """A consumer whose offsets an operator can reset: the push consumer."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...


def register_inspection_handlers(instance: ClientInstance) -> None:
    """Register the handlers for all consumers of the instance. Idempotent."""

    async def reset(request: RemotingCommand, address: str) -> None:
        reset_request = ResetRequest.of(request)
        group = reset_request.group
        consumer = instance.consumers.get(group)
        if not isinstance(consumer, ResettableConsumer):
            log.info("%s resets offsets of group %s, which has no push consumer here", address, group)
            return
        log.info("%s resets %d offsets of group %s", address, len(reset_request.offsets), group)
        await consumer.reset_offsets(reset_request.topic, reset_request.offsets)

    def status(request: RemotingCommand, address: str) -> RemotingCommand:
        group = request.text("group")
        consumer = instance.consumers.get(group)
        log.debug("%s requests the offsets of group %s", address, group)
        table: dict[MessageQueue, int] = {}
        if isinstance(consumer, InspectableConsumer):
            table = consumer.known_offsets(request.text_or("topic", ""))
        return request.answer(
            body=fastjson.dumps({"consumerTable": {}, "messageQueueTable": table}, is_sorted=False)
        )

    async def info(request: RemotingCommand, address: str) -> RemotingCommand:
        group = request.text("consumerGroup")
        consumer = instance.consumers.get(group)
        if not isinstance(consumer, InspectableConsumer):
            text = f"The Consumer Group <{group}> not exist in this consumer"
            return request.answer(ResponseCode.SYSTEM_ERROR, text)
        log.debug("%s requests the running info of group %s", address, group)
        info_json = await consumer.running_info(stacks=request.boolean_or("jstackEnable", False))
        return request.answer(body=fastjson.dumps(info_json, is_sorted=False))

    instance.register_handler(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset)
    instance.register_handler(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
    instance.register_handler(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
