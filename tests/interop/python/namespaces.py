"""A producer and a consumer in a namespace, known by the consumer's name.

A message with the tag `again` is taken at its second try.
"""

from collections.abc import Awaitable, Callable, Sequence

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import Answer, ConsumeResult
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.interop.python.events import emit, of_message
from tests.interop.python.parameters import Parameters


class Namespaces:
    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._inside: dict[str, tuple[Producer, PushConsumer]] = {}

    def operations(self) -> dict[str, Callable[[Parameters], Awaitable[None]]]:
        return {"enter": self.enter, "leave": self.leave}

    async def enter(self, parameters: Parameters) -> None:
        producer = Producer(parameters.text("group") + "-sends", client=self._client(parameters, "-sends"))
        await producer.start()
        for body in parameters.all("body"):
            message = Message(
                parameters.text("topic"), bytes.fromhex(body), tags=parameters.text("tags", "") or None
            )
            emit("sent", status=(await producer.send(message)).status.name)
        consumer = PushConsumer(
            parameters.text("group"),
            client=self._client(parameters, ""),
            options=PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET, orderly=bool(parameters.text("orderly", ""))
            ),
        )
        consumer.subscribe(parameters.text("topic"), _taken(parameters.text("name")))
        await consumer.start()
        self._inside[parameters.text("name")] = producer, consumer

    async def leave(self, parameters: Parameters) -> None:
        producer, consumer = self._inside.pop(parameters.text("name"))
        await producer.close()
        await consumer.close()

    def _client(self, parameters: Parameters, suffix: str) -> ClientOptions:
        """`kind` is `setNamespace` or `setNamespaceV2`."""
        second = parameters.text("kind") == "setNamespaceV2"
        name = parameters.text("namespace")
        return ClientOptions(
            name_server=self._name_server,
            instance_name=parameters.text("name") + suffix,
            poll_name_server_s=0.5,
            namespace=None if second else name,
            namespace_v2=name if second else None,
        )


def _taken(name: str) -> Callable[[Sequence[ReceivedMessage]], Awaitable[Answer]]:
    async def take(messages: Sequence[ReceivedMessage]) -> Answer:
        taken = True
        for message in messages:
            emit("message", **of_message(message), consumer=name)
            taken &= message.tags != "again" or message.reconsume_times > 0
        return ConsumeResult.SUCCESS if taken else ConsumeResult.RETRY_LATER

    return take
