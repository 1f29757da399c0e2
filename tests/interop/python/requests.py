"""Requests and repliers. A replier answers `re: BODY`, and is silent to a message with the tag `silent`."""

from collections.abc import Awaitable, Callable, Sequence

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import RequestReplyTimeout, RocketMQError
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.interop.python.events import emit, failure, of_message
from tests.interop.python.parameters import Parameters
from tests.interop.python.producers import Producers, messages


class Requests:
    def __init__(self, name_server: str, producers: Producers) -> None:
        self._name_server = name_server
        self._producers = producers
        self._repliers: dict[str, PushConsumer] = {}

    def operations(self) -> dict[str, Callable[[Parameters], Awaitable[None]]]:
        return {"request": self.request, "reply": self.reply, "stopReply": self.stop}

    async def request(self, parameters: Parameters) -> None:
        producer = await self._producers.producer(parameters)
        for message in messages(parameters):
            try:
                reply = await producer.request(
                    message, timeout_s=parameters.number("timeoutMs", 20_000) / 1000
                )
                emit("reply", **of_message(reply))
            except RequestReplyTimeout as late:
                failure("late", late)

    async def reply(self, parameters: Parameters) -> None:
        name, producer = parameters.text("name"), await self._producers.producer(parameters)
        consumer = PushConsumer(
            parameters.text("group"),
            client=ClientOptions(
                name_server=self._name_server, instance_name=name, poll_name_server_s=0.5, rebalance_s=0.5
            ),
            options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
        )

        @consumer.subscribe(parameters.text("topic"))
        async def answer(requests: Sequence[ReceivedMessage]) -> None:
            for request in requests:
                if request.tags != "silent":
                    try:
                        sent = await producer.reply(request, b"re: " + request.body)
                        emit("answered", consumer=name, status=sent.status.name)
                    except RocketMQError as error:
                        failure("answered", error, consumer=name)

        await consumer.start()
        self._repliers[name] = consumer

    async def stop(self, parameters: Parameters) -> None:
        await self._repliers.pop(parameters.text("name")).close()
