"""Measures how many messages a consumer holds at a time: `python -m bench.held --messages 1000000`.

A topic is filled in batches while a push consumer with small thresholds consumes it. Measured: the most
messages that the ProcessQueue of a queue held at a time, and how much this process's memory grew. Exits with
1 if a limit is exceeded.
"""

import argparse
import asyncio
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from firearrow.client import (
    Admin,
    ConsumeFromWhere,
    LocalBroker,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)

BODY, BATCH, QUEUES = bytes(128), 200, 4
THRESHOLD, PULL_BATCH = 100, 32
GROWTH_KIB_MAX = 32 * 1024
IDLE_S = 60


@dataclass(frozen=True, slots=True)
class Held:
    messages: int
    most: int
    """Of one queue at a time; a pull that was on its way below the threshold still comes."""
    growth_kib: int

    @property
    def within(self) -> bool:
        return self.most <= THRESHOLD + PULL_BATCH and self.growth_kib <= GROWTH_KIB_MAX


async def held(name_server: str, topic: str, messages: int) -> Held:
    """Send the messages, consume them, measure. TimeoutError: no message arrived for a minute."""
    handled = most = 0
    news = asyncio.Event()

    async def handle(received: list[ReceivedMessage]) -> None:
        nonlocal handled, most
        role = consumer._runtime
        assert role is not None
        most = max(most, *(queue.message_count for queue in role.table.values()))
        await asyncio.sleep(0)  # slower than pulls, so that the queues become full
        handled += len(received)
        news.set()

    options = PushConsumerOptions(
        from_where=ConsumeFromWhere.FIRST_OFFSET, queue_messages_max=THRESHOLD, pull_batch=PULL_BATCH
    )
    consumer = PushConsumer(f"{topic}-group", name_server=name_server, options=options)
    consumer.subscribe(topic, handle)
    async with Admin(name_server) as admin, Producer(f"{topic}-p", name_server=name_server) as producer:
        await admin.create_topic(topic, QUEUES)
        async with consumer:
            feeding = asyncio.create_task(_feed(producer, topic, messages))
            while handled < min(messages, 10 * THRESHOLD):
                await _awaited(news)
            before_kib = anonymous_kib()
            growth_kib = 0
            while handled < messages:
                await _awaited(news)
                growth_kib = max(growth_kib, anonymous_kib() - before_kib)
            await feeding
    return Held(handled, most, growth_kib)


async def _feed(producer: Producer, topic: str, messages: int) -> None:
    for at in range(0, messages, BATCH):
        await producer.send_batch([Message(topic, BODY) for _ in range(min(BATCH, messages - at))])


async def _awaited(news: asyncio.Event) -> None:
    async with asyncio.timeout(IDLE_S):
        await news.wait()
    news.clear()
    await asyncio.sleep(0.01)


def anonymous_kib() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = parser.parse_args().messages
    with LocalBroker() as broker:
        started = time.perf_counter()
        found = asyncio.run(held(broker.name_server, "held", messages))
    print(
        f"{found.messages} messages in {time.perf_counter() - started:.1f} s; a queue held {found.most} at most "
        f"(threshold {THRESHOLD}, a pull {PULL_BATCH}); memory grew by {found.growth_kib} KiB "
        f"(at most {GROWTH_KIB_MAX})"
    )
    return 0 if found.within else 1


if __name__ == "__main__":
    sys.exit(main())
