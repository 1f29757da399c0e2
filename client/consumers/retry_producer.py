"""RetryProducer: sends a message to the group's retry topic when the broker did not take it back.

Its producer is created at first use, with a separate client id and separate connections, so that it does not
compete with others. Event loop only.
"""

import asyncio
from dataclasses import replace

from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.producer import Producer

GROUP = "CLIENT_INNER_PRODUCER"


class RetryProducer:
    def __init__(self, client: ClientOptions) -> None:
        self._client = replace(client, instance_name=None, generated_name=ClientOptions().generated_name)
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    async def publish(self, message: Message) -> None:
        """RocketMQError: the message was not stored."""
        async with self._starting:
            if self._producer is None:
                producer = Producer(GROUP, options=ProducerOptions(), client=self._client)
                await producer.start()
                self._producer = producer
        await self._producer.send(message)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
