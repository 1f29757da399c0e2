"""`taskiq worker tests.integrations.programs.taskiq_program:broker`, and `python -m …` to send numbers."""

import asyncio
import sys

from firearrow.client.integrations.taskiq import RocketMQBroker
from tests.integrations.programs import record

broker = RocketMQBroker(
    queue_name=record.queue(),
    consumer_group_name=record.queue(),
    prefetch=2,
    options=record.OPTIONS,
    client=record.client(),
)


@broker.task(task_name="work")
def work(number: int, seconds: float) -> None:
    record.work(number, seconds)


async def main(count: int, seconds: float) -> None:
    await broker.startup()
    for number in range(count):
        await work.kiq(number, seconds)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
