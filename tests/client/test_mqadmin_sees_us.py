"""Apache's own mqadmin looks at our consumer and sets its offsets, as operators do."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.driver import Driver
from tests.interop.peers import Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.interop
Topics = Callable[..., str]


class Admin:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def __call__(self, line: str) -> str:
        """The output of a command. In a thread: our loop must answer at the same time."""
        [output] = await asyncio.to_thread(partial(self._driver.ask, "mqadmin", argument=line.split()))
        return str(output["text"])


@pytest.fixture(scope="module")
def mqadmin(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    need(partial(java_class_path, "client5"))
    driver = Driver("java5", peer.name_server, tmp_path_factory.mktemp("mqadmin"))
    yield Admin(driver)
    driver.stop()


@asynccontextmanager
async def running(
    name_server: str, topic: str, **options: object
) -> AsyncIterator[tuple[PushConsumer, list[bytes]]]:
    """A consumer and the bodies it was given."""
    bodies: list[bytes] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    chosen = PushConsumerOptions(**{"from_where": ConsumeFromWhere.FIRST_OFFSET} | options)  # type: ignore[arg-type]
    consumer = PushConsumer(unique("group"), name_server=name_server, options=chosen)
    consumer.subscribe(topic, handle, tags="a || b")
    async with consumer:
        yield consumer, bodies


@pytest.mark.parametrize("orderly", [False, True])
async def test_how_a_consumer_runs_is_shown(
    name_server: str, topics: Topics, feeder: RawProducer, mqadmin: Admin, orderly: bool
) -> None:
    topic = topics(queues=2)
    feeder.feed(topic, [b"1", b"2", b"3"], queue_id=1, tag="b")
    async with running(name_server, topic, orderly=orderly) as (consumer, bodies):
        await eventually_async(lambda: len(bodies) == 3)
        assert consumer.client_id is not None
        shown = await mqadmin(f"consumerStatus -g {consumer.group} -i {consumer.client_id} -s")
        assert re.search(r"PROP_CONSUME_TYPE +: CONSUME_PASSIVELY", shown)
        assert re.search(rf"PROP_CONSUMEORDERLY +: {str(orderly).lower()}", shown)
        assert re.search(rf"Topic: {topic} +ClassFilter: false +SubExpression: a \|\| b", shown)
        assert re.search(rf"{topic} +broker-a +1 +3 *\n", shown), "the offset of queue 1 is what was handled"
        assert "test_how_a_consumer_runs_is_shown" in shown, "stacks of tasks are among what jstack shows"
        group = await mqadmin(f"consumerStatus -g {consumer.group}")
        assert f"{consumer.client_id} " in group
        assert "V5_5_0" in group
        assert "Rebalance OK" in group
        assert "WARN" not in group
        connection = await mqadmin(f"consumerConnection -g {consumer.group}")
        assert re.search(rf"{re.escape(consumer.client_id)} +\S+ +PYTHON +V5_5_0", connection)


async def test_a_group_is_set_back_while_it_runs(
    name_server: str, topics: Topics, feeder: RawProducer, mqadmin: Admin
) -> None:
    topic = topics(queues=2)
    feeder.feed(topic, [b"1", b"2", b"3"], queue_id=1, tag="a")
    async with running(name_server, topic) as (consumer, bodies):
        await eventually_async(lambda: len(bodies) == 3)
        runtime = consumer._runtime
        assert runtime is not None
        runtime._reset.settle_s = 0.1
        reset = await mqadmin(f"resetOffsetByTime -g {consumer.group} -t {topic} -s 1000")
        assert re.search(r"broker-a +1 +0", reset)
        await eventually_async(lambda: len(bodies) == 6, 30)
    assert bodies == [b"1", b"2", b"3"] * 2
