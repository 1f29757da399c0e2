"""Republisher: sends a consumer's messages to its own retry topic when the broker could not be asked to do that itself.

Its producer is made when first wanted, with a client id and sockets of its own, so that no other is in its way. Event
loop only.
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
        """RocketMQError: it was not taken."""
        async with self._starting:
            if self._producer is None:
                producer = Producer(GROUP, options=ProducerOptions(), client=self._client)
                await producer.start()
                self._producer = producer
        await self._producer.send(message)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
