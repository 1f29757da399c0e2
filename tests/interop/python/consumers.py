"""Push consumers, each known by a name, which is its instance name too; an event `message` for each message.

Each message is reported, then fails as often as its property `failures` says. `delayLevel` is the consumer's choice for
the next delivery, -1 sends to the dead letters.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.consume.consume_results import Answer, ConsumeResult, DeadLetter, Retry
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.interop.python.events import emit, of_message, of_queue
from tests.interop.python.parameters import Parameters

Handler = Callable[[Sequence[ReceivedMessage]], Awaitable[Answer]]


class Consumers:
    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._consumers: dict[str, PushConsumer] = {}

    def operations(self) -> dict[str, Callable[[Parameters], Awaitable[None]]]:
        return {"consume": self.consume, "awaitQueues": self.await_queues, "stop": self.stop}

    async def consume(self, parameters: Parameters) -> None:
        name = parameters.text("name")
        consumer = PushConsumer(
            parameters.text("group"),
            client=ClientOptions(
                name_server=self._name_server,
                instance_name=name,
                poll_name_server_s=0.5,
                persist_offsets_s=0.5,
                rebalance_s=0.5,
            ),
            options=options(parameters),
        )
        consumer.subscribe(
            parameters.text("topic"),
            verdicts(name, parameters),
            tags=parameters.text("tags", "") or None,
            sql=parameters.text("sql", "") or None,
        )
        await consumer.start()
        self._consumers[name] = consumer

    async def stop(self, parameters: Parameters) -> None:
        await self._consumers.pop(parameters.text("name")).close()

    async def await_queues(self, parameters: Parameters) -> None:
        """Wait until the consumer owns exactly `count` queues of the topic, and report them."""
        consumer = self._consumers[parameters.text("name")]
        deadline = time.monotonic() + parameters.number("seconds", 30)
        while True:
            assert consumer._runtime is not None
            held = [
                queue
                for queue, process_queue in consumer._runtime.table.items()
                if queue.topic == parameters.text("topic")
                and (process_queue.locked or not parameters.text("locked", ""))
            ]
            if len(held) == parameters.number("count", 0):
                for queue in held:
                    emit("queue", **of_queue(queue))
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"holds {held}")
            await asyncio.sleep(0.02)


def options(parameters: Parameters) -> PushConsumerOptions:
    return PushConsumerOptions(
        threads=2,
        orderly=bool(parameters.text("orderly", "")),
        model=MessageModel(parameters.text("model", "CLUSTERING")),
        from_where=ConsumeFromWhere("CONSUME_FROM_" + parameters.text("from", "FIRST_OFFSET")),
        from_time=datetime.strptime(parameters.text("timestamp", "20200101000000"), "%Y%m%d%H%M%S"),
        max_reconsume_times=parameters.number("maxReconsumeTimes", -1),
        suspend_s=parameters.number("suspendMs", 1000) / 1000,
        client_rebalance=not parameters.text("pop", ""),
        pop_invisible_s=10,
        trace=bool(parameters.text("trace", "")),
        local_offsets=Path.home() / ".rocketmq_offsets",
    )


def verdicts(name: str, parameters: Parameters) -> Handler:
    level = parameters.number("delayLevel", 0)
    again = DeadLetter() if level < 0 else Retry(level)
    orderly = bool(parameters.text("orderly", ""))

    async def judge(messages: Sequence[ReceivedMessage]) -> Answer:
        fails = False
        for message in messages:
            emit("message", **of_message(message), consumer=name, at=int(time.time() * 1000), thread="loop")
            failures = message.get_property("failures")
            fails |= failures is not None and message.reconsume_times < int(failures)
        if fails:
            return ConsumeResult.SUSPEND if orderly else again
        return ConsumeResult.SUCCESS

    return judge
