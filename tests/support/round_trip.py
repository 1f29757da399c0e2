"""One message sent and received with the Python client."""

import asyncio

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)

WAIT_S = 15


async def send_and_receive(name_server: str, topic: str, body: bytes) -> tuple[str, ReceivedMessage]:
    """The offset id of the message as the producer gets it, and the message as a push consumer gets it."""
    received: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(f"{topic}-readers", name_server=name_server, options=options)

    @consumer.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            received.put_nowait(message)

    async with Producer(f"{topic}-writers", name_server=name_server) as producer:
        sent = await producer.send(Message(topic, body))
        async with consumer:
            message = await asyncio.wait_for(received.get(), WAIT_S)
    return sent.offset_message_id, message
