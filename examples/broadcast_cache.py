"""A cache in every process of a service, refreshed by broadcast: every process gets every change.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/broadcast_cache.py

Three consumers of one group stand for three processes. Each keeps its offsets in its own file.
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
    """The prices in one process."""

    def __init__(self, name: str, offsets: Path, expected: dict[str, str]) -> None:
        self.prices: dict[str, str] = {}
        self.expected = expected
        self.complete = asyncio.Event()
        self.consumer = PushConsumer(
            GROUP,
            client=ClientOptions(instance_name=name),
            options=PushConsumerOptions(
                model=MessageModel.BROADCASTING,
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                batch_size=32,
                orderly=True,  # an article's newest price is the last in its queue
                local_offsets=offsets,
            ),
        )
        self.consumer.subscribe(TOPIC, self.refresh)

    async def refresh(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.prices[message.keys[0]] = message.body.decode()
        if self.prices == self.expected:
            self.complete.set()


async def main() -> None:
    expected = {f"article-{number}": f"{number}.99" for number in range(100)}
    with tempfile.TemporaryDirectory() as folder:
        caches = [Cache(f"process-{number}", Path(folder), expected) for number in range(3)]
        async with Producer("example-catalogue") as producer:
            for price in ("0.00", None):
                for article, final in expected.items():
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
    print(f"{len(caches)} caches hold {len(expected)} prices each")


if __name__ == "__main__":
    asyncio.run(main())
