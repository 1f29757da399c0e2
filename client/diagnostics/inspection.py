"""What operators ask of the consumers of an instance: reset offsets (220), tell them (221), tell how they run (307).

Finds the consumer by its group and answers as Java does. Knows no consumer but by Inspected. Event loop only.
"""

import logging
from typing import Protocol, runtime_checkable

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import MessageQueue
from firearrow.client.diagnostics.reset_offsets import ResetRequest
from firearrow.client.rebalance import fastjson
from firearrow.client.remoting.client_instance import ClientInstance

log = logging.getLogger("firearrow.client")


@runtime_checkable
class InspectableConsumer(Protocol):
    """A consumer that can be looked at."""

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """What its offset store has in memory of one topic, or of all if that is empty."""

    async def running_info(self, *, stacks: bool) -> dict[str, object]: ...


@runtime_checkable
class ResettableConsumer(Protocol):
    """A consumer that goes elsewhere when told to: the push consumer."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...


def register_inspection_handlers(instance: ClientInstance) -> None:
    """Answer operators for all consumers of the instance. Doing it again changes nothing."""

    async def reset(request: RemotingCommand, address: str) -> None:
        wanted = ResetRequest.of(request)
        consumer = instance.consumers.get(wanted.group)
        if not isinstance(consumer, ResettableConsumer):
            log.info("%s sets offsets of %s: no such consumer is here", address, wanted.group)
            return
        log.info("%s sets %d offsets of %s", address, len(wanted.offsets), wanted.group)
        await consumer.reset_offsets(wanted.topic, wanted.offsets)

    def status(request: RemotingCommand, address: str) -> RemotingCommand:
        group = request.text("group")
        consumer = instance.consumers.get(group)
        log.debug("%s asks for the offsets of %s", address, group)
        table: dict[MessageQueue, int] = {}
        if isinstance(consumer, InspectableConsumer):
            table = consumer.known_offsets(request.text_or("topic", ""))
        return request.answer(body=fastjson.dumps({"consumerTable": {}, "messageQueueTable": table}))

    async def info(request: RemotingCommand, address: str) -> RemotingCommand:
        group = request.text("consumerGroup")
        consumer = instance.consumers.get(group)
        if not isinstance(consumer, InspectableConsumer):
            text = f"The Consumer Group <{group}> not exist in this consumer"
            return request.answer(ResponseCode.SYSTEM_ERROR, text)
        log.debug("%s asks how %s runs", address, group)
        told = await consumer.running_info(stacks=request.boolean_or("jstackEnable", False))
        return request.answer(body=fastjson.dumps(told))

    instance.register_handler(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset)
    instance.register_handler(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
    instance.register_handler(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
