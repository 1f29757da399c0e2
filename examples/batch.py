"""Many small messages, sent in three ways: one by one, all at once, and in batches.

NAMESRV_ADDR=127.0.0.1:9876 python examples/batch.py [MESSAGES]
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from firearrow.client import Message, Producer, split

TOPIC = "example-measurements"


def measurements(count: int) -> list[Message]:
    return [
        Message(TOPIC, f"{number / 7:.6f}".encode(), keys=[f"sensor-{number % 10}"])
        for number in range(count)
    ]


async def timed(what: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
    began = time.perf_counter()
    await work()
    seconds = time.perf_counter() - began
    print(f"{what}: {count} messages in {seconds:.2f} s, {count / seconds:,.0f} a second")


async def main(count: int) -> None:
    async with Producer("example-sensors") as producer:
        await producer.send(Message(TOPIC, b"creates the topic"))

        async def one_by_one() -> None:
            for message in measurements(count // 10):
                await producer.send(message)

        async def at_once() -> None:
            await asyncio.gather(*(producer.send(message) for message in measurements(count)))

        async def in_batches() -> None:
            for batch in split(measurements(count), 256 * 1024):
                await producer.send_batch(batch)

        await timed("one by one", count // 10, one_by_one)
        await timed("at once", count, at_once)
        await timed("in batches", count, in_batches)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
