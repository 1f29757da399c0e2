"""A worker that handles orders, fails now and then, and gets failed orders again, until it gives up on them.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/worker_with_retries.py [ORDERS]

A handler's return value decides what happens to its messages: SUCCESS, Retry(delay_level=…), DeadLetter(). An exception
means retry, too: the message goes to the group's retry topic and comes back after 10 seconds, then after longer delays.
"""

import asyncio
import sys
from collections.abc import Sequence

from firearrow.client import (
    ConsumeFromWhere,
    ConsumeResult,
    DeadLetter,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    Retry,
)

TOPIC, GROUP = "example-orders", "example-worker"


async def main(count: int) -> None:
    handled: set[str] = set()
    done = asyncio.Event()
    consumer = PushConsumer(
        GROUP, options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, max_reconsume_times=3)
    )

    @consumer.subscribe(TOPIC, tags="new || paid")
    async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeResult | Retry | DeadLetter:
        message = messages[0]
        order = message.body.decode()
        if message.tags == "paid" and message.reconsume_times == 0:
            print(f"{order}: the bank does not answer, retry in a second")
            return Retry(delay_level=1)
        if order.endswith("13"):
            print(f"{order}: cannot be handled, goes to the dead letters")
            return DeadLetter()
        print(f"{order}: handled at attempt {message.reconsume_times + 1}")
        handled.add(order)
        if len(handled) == count - 1:
            done.set()
        return ConsumeResult.SUCCESS

    async with Producer("example-shop") as producer, consumer:
        for number in range(1, count + 1):
            tags = "paid" if number % 5 == 0 else "new"
            await producer.send(
                Message(TOPIC, f"order {number}".encode(), tags=tags, keys=[f"order-{number}"])
            )
        async with asyncio.timeout(60):
            await done.wait()
    print(f"all {len(handled)} orders handled")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
