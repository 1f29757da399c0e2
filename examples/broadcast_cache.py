"""A cache in every process of a service, refreshed by broadcast: each process hears each change, not only one of them.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/broadcast_cache.py

Three consumers of one group stand for three processes. Where each of them is, is kept in a file of its own.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from firearrow.client import (
    ClientOptions,
    ConsumeFromWhere,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)

TOPIC, GROUP = "example-prices", "example-price-cache"


class Cache:
    """What one process knows of the prices."""

    def __init__(self, name: str, offsets: Path, wanted: dict[str, str]) -> None:
        self.prices: dict[str, str] = {}
        self.wanted = wanted
        self.complete = asyncio.Event()
        self.consumer = PushConsumer(
            GROUP,
            client=ClientOptions(instance_name=name),
            options=PushConsumerOptions(
                model=MessageModel.BROADCASTING,
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                batch_size=32,
                orderly=True,  # the newest price of an article is the last one in its queue
                local_offsets=offsets,
            ),
        )
        self.consumer.subscribe(TOPIC, self.refresh)

    async def refresh(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.prices[message.keys[0]] = message.body.decode()
        if self.prices == self.wanted:
            self.complete.set()


async def main() -> None:
    wanted = {f"article-{number}": f"{number}.99" for number in range(100)}
    with tempfile.TemporaryDirectory() as folder:
        caches = [Cache(f"process-{number}", Path(folder), wanted) for number in range(3)]
        async with Producer("example-catalogue") as producer:
            for price in ("0.00", None):
                for article, final in wanted.items():
                    await producer.send(
                        Message(TOPIC, (price or final).encode(), keys=[article], sharding_key=article)
                    )
            for cache in caches:
                await cache.consumer.start()
            async with asyncio.timeout(30):
                for cache in caches:
                    await cache.complete.wait()
            for cache in caches:
                await cache.consumer.close()
    print(f"{len(caches)} caches know {len(wanted)} prices each")


if __name__ == "__main__":
    asyncio.run(main())
