"""Sends. One producer a group, started when first asked for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import Message, SendResult
from firearrow.client.base.options import ClientOptions, CompressionKind, ProducerOptions
from firearrow.client.send.producer import Producer
from firearrow.client.send.queue_selection import Selector
from tests.interop.python.events import emit, failure, of_queue
from tests.interop.python.parameters import Parameters

Operation = Callable[[Parameters], Awaitable[None]]


class Producers:
    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._producers: dict[str, Producer] = {}

    def operations(self) -> dict[str, Operation]:
        return {
            "send": self.send,
            "route": self.route,
            "stopProducer": self.stop,
            "recall": self.recall,
        }

    async def producer(self, parameters: Parameters) -> Producer:
        group = parameters.text("group")
        if group not in self._producers:
            producer = Producer(
                group,
                client=ClientOptions(
                    name_server=self._name_server,
                    instance_name=parameters.text("instance", group),
                    poll_name_server_s=0.5,
                ),
                options=ProducerOptions(
                    send_timeout_s=20,
                    retries=0,
                    trace=bool(parameters.text("trace", "")),
                    message_bytes_max=parameters.number("maxMessageSize", 4 << 20),
                    auto_batch=bool(parameters.text("autoBatch", "")),
                    **_compression(parameters),
                ),
            )
            await producer.start()
            self._producers[group] = producer
        return self._producers[group]

    async def send(self, parameters: Parameters) -> None:
        producer, wanted = await self.producer(parameters), messages(parameters)
        how = parameters.text("how", "sync")
        if how == "batch":
            sent(await producer.send_batch(wanted))
        elif how == "async":
            await asyncio.gather(*(self._one_of_many(producer, message) for message in wanted))
        else:
            for message in wanted:
                if how == "oneway":
                    await producer.send_oneway(message)
                elif how == "queue":
                    sent(await producer.send(message, selector=_numbered(parameters.number("queue", 0))))
                else:
                    sent(await producer.send(message))

    async def route(self, parameters: Parameters) -> None:
        producer = await self.producer(parameters)
        topic = parameters.text("topic")
        await producer.instance.routes.refresh(topic)
        for queue in (await producer.instance.routes.publish_info(topic)).queues:
            emit("queue", **of_queue(queue))

    async def recall(self, parameters: Parameters) -> None:
        producer = await self.producer(parameters)
        emit("recalled", msgId=await producer.recall(parameters.text("topic"), parameters.text("handle")))

    async def stop(self, parameters: Parameters) -> None:
        await self._producers.pop(parameters.text("group")).close()

    async def _one_of_many(self, producer: Producer, message: Message) -> None:
        try:
            sent(await producer.submit(message))
        except RocketMQError as error:
            failure("refused", error)


def messages(parameters: Parameters) -> list[Message]:
    return [
        Message(
            parameters.text("topic"),
            bytes.fromhex(body),
            flag=parameters.number("flag", 0),
            tags=parameters.text("tags", "") or None,
            keys=parameters.text("keys", "").split(),
            properties=parameters.under("property.") | parameters.under("system."),
            delay_level=parameters.number("delayLevel", 0),
            **_when(parameters),
        )
        for body in parameters.all("body")
    ]


def _compression(parameters: Parameters) -> dict[str, Any]:
    kind = parameters.text("compression", "ZLIB")
    return {"compress_over_bytes": 1 << 31} if kind == "none" else {"compression": CompressionKind(kind)}


def _numbered(number: int) -> Selector:
    return lambda queues, _: queues[number]


def _when(parameters: Parameters) -> dict[str, Any]:
    """`delaySeconds`, `delayMs`, `deliverInMs` from now, or `priority`."""
    delay_ms = parameters.number("delayMs", 1000 * parameters.number("delaySeconds", 0))
    deliver_in_ms, priority = parameters.number("deliverInMs", 0), parameters.number("priority", -1)
    return {
        "delay_s": delay_ms / 1000 if delay_ms else None,
        "deliver_at_ms": int(time.time() * 1000) + deliver_in_ms if deliver_in_ms else None,
        "priority": priority if priority >= 0 else None,
    }


def sent(result: SendResult) -> None:
    emit(
        "sent",
        **of_queue(result.queue),
        status=result.status.name,
        msgId=result.message_id,
        offsetMsgId=result.offset_message_id,
        queueOffset=result.queue_offset,
        recallHandle=result.recall_handle,
    )
