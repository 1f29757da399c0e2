"""What the tests of `firearrow send`, `message`, `dlq` and `tx` do with a broker of either kind."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually, eventually_async

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WAIT_S = 90


class Served(Protocol):
    """A broker that has a name server."""

    name_server: str


class Cli:
    """`cli("send", "orders", "hello")` in this process; `namesrv`: of the broker that is meant."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def __call__(self, *words: str, code: int | None = 0) -> Ran:
        """AssertionError: the exit code is not `code` (None: any)."""
        ran = here(*words, name_server=self.namesrv)
        assert code in (None, ran.code), ran
        return ran


def new_topic(broker: Served, queues: int = 2) -> str:
    name = unique("cli")

    async def create() -> None:
        async with Admin(broker.name_server) as admin:
            await admin.create_topic(name, queues)

    asyncio.run(create())
    return name


def consume(
    broker: Served,
    group: str,
    topic: str,
    result: ConsumeResult,
    count: int,
    until: Callable[[], bool] = lambda: True,
    **more: int,
) -> list[str]:
    """Let a member of the group get messages, each with this result, `until` something holds; the traceparents of the
    first `count`."""
    seen: list[str] = []

    async def run() -> None:
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, **more)
        consumer = PushConsumer(group, name_server=broker.name_server, options=options)

        @consumer.subscribe(topic)
        async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
            seen.extend(message.get_property("traceparent", "") or "" for message in messages)
            return result

        async def stop() -> None:
            await eventually_async(lambda: len(seen) >= count)
            await asyncio.to_thread(eventually, until)
            await asyncio.sleep(0.3)
            consumer.stop()

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(stop())
            await consumer.run()

    asyncio.run(run())
    return seen


def dead_letter(broker: Served, cli: Cli, topic: str, *bodies: str) -> str:
    """A group that has these dead letters."""
    group = unique("dead")
    for body in bodies:
        cli("send", topic, body, "--key", body, "--property", f"traceparent={PARENT}")

    def are_dead() -> bool:
        return len(cli("dlq", "show", group, code=None).lines) == len(bodies)

    consume(broker, group, topic, ConsumeResult.RETRY_LATER, len(bodies), are_dead, max_reconsume_times=0)
    return group


def open_transaction(broker: Served, topic: str, group: str, *, asked: bool = False) -> str:
    """A half message whose producer has left, after it was `asked` for it once; its id."""

    async def begin() -> str:
        checked = asyncio.Event()

        async def check(_: ReceivedMessage) -> None:
            checked.set()

        message = Message(topic, b"half", properties={"traceparent": PARENT})
        async with Producer(group, name_server=broker.name_server, checker=check) as producer:
            result = await producer.send_in_transaction(message, lambda *_: TransactionState.UNKNOWN)
            if asked:
                await asyncio.wait_for(checked.wait(), WAIT_S)
            return result.sent.message_id

    return asyncio.run(begin())
