"""The life of a push consumer: starts, restarts, pauses, subscription changes, draining; alone and as a program."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NotRunning
from firearrow.client.base.options import ClientOptions, PushConsumerOptions
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.pushing import Seen, Topics, again, consumer
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually_async
from tests.support.fork_server import ForkedCommand


async def test_a_consumer_runs_once(name_server: str, topics: Topics) -> None:
    made = consumer(name_server, topics(), Seen())
    assert made.state is ServiceState.CREATE_JUST
    await made.start()
    assert made.state is ServiceState.RUNNING
    with pytest.raises(NotRunning, match="RUNNING"):
        await made.start()
    await made.close()
    await made.close()
    with pytest.raises(NotRunning, match="SHUTDOWN_ALREADY"):
        await made.start()
    with pytest.raises(NotRunning):
        made.pause()


async def test_a_failed_start_leaves_nothing_and_may_be_tried_again(name_server: str, topics: Topics) -> None:
    topic = topics()
    made = PushConsumer(unique("group"), client=ClientOptions(name_server="127.0.0.1:1"))
    made.subscribe(topic, Seen())
    tasks = len(asyncio.all_tasks())
    for attempt in (made.start, made.start, made.run):
        with pytest.raises(ClientError):
            await attempt()
        assert made.state is ServiceState.START_FAILED
    assert len(asyncio.all_tasks()) == tasks
    made._client = ClientOptions(name_server=name_server)
    await made.start()
    assert made.state is ServiceState.RUNNING
    await made.close()


async def test_an_expression_that_no_broker_understands_fails_the_start(
    name_server: str, topics: Topics
) -> None:
    made = PushConsumer(unique("group"), name_server=name_server)
    made.subscribe(topics(), Seen(), sql="this is no expression (")
    with pytest.raises(BrokerError):
        await made.start()
    assert made.state is ServiceState.START_FAILED


async def test_a_group_runs_once_in_an_instance(name_server: str, topics: Topics) -> None:
    topic, group, client = topics(), unique("group"), ClientOptions(name_server=name_server)
    first, second = (PushConsumer(group, client=client) for _ in range(2))
    first.subscribe(topic, Seen())
    second.subscribe(topic, Seen())
    async with first:
        with pytest.raises(ConfigError, match=group):
            await second.start()
        assert second.state is ServiceState.CREATE_JUST
        assert first.state is ServiceState.RUNNING
    await second.start()
    await second.close()


async def test_what_cannot_be_meant_is_refused(name_server: str) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        PushConsumer("DEFAULT_CONSUMER", name_server=name_server)
    with pytest.raises(ConfigError, match="group"):
        PushConsumer("a b", name_server=name_server)
    with pytest.raises(ConfigError, match="allocate"):
        PushConsumer("g", name_server=name_server, options=PushConsumerOptions(allocate="NONE"))
    made = PushConsumer("g", name_server=name_server)
    with pytest.raises(ConfigError, match="topic"):
        made.subscribe("a b", Seen())
    with pytest.raises(ConfigError, match="callable"):
        made.subscribe("t", 3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="handler"):
        await made.start()


async def test_pausing_stops_pulls_and_resuming_goes_on(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen, other = topics(queues=1), Seen(), Seen()
    made = consumer(name_server, topic, seen)
    async with made, consumer(name_server, topic, other):
        feeder.feed(topic, [b"1"])
        await eventually_async(lambda: seen.messages)
        made.pause()
        assert made.paused
        feeder.feed(topic, [b"brought by the pull that was on its way"])
        await eventually_async(lambda: len(other.messages) == 2)
        feeder.feed(topic, [b"3"])
        await eventually_async(lambda: len(other.messages) == 3)
        await asyncio.sleep(0.1)
        assert len(seen.messages) == 1
        made.resume()
        await eventually_async(lambda: seen.bodies[2:] == [b"3"])
        assert len(seen.messages) == 3


async def test_topics_may_come_and_go_while_it_runs(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    first, second, seen = topics(), topics(), Seen()
    made = consumer(name_server, first, seen)
    async with made:
        await eventually_async(lambda: any(queue.topic == first for queue in made.queues))
        made.subscribe(second, seen)
        feeder.feed(second, [b"second"])
        await eventually_async(lambda: b"second" in seen.bodies)
        made.unsubscribe(first)
        await eventually_async(lambda: not any(queue.topic == first for queue in made.queues))
        feeder.feed(first, [b"unwanted"])
        feeder.feed(second, [b"wanted"])
        await eventually_async(lambda: b"wanted" in seen.bodies)
    assert b"unwanted" not in seen.bodies


async def test_closing_lets_handlers_finish_and_keeps_their_results(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    begun, finish = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[ReceivedMessage]) -> None:
        begun.set()
        await finish.wait()

    first = consumer(name_server, topic, slow)
    feeder.feed(topic, [b"1"])
    await first.start()
    await begun.wait()
    closing = asyncio.create_task(first.close())
    await asyncio.sleep(0)
    assert not closing.done()
    finish.set()
    await closing
    feeder.feed(topic, [b"2"])
    second = again(first, name_server, topic, seen)
    async with second:
        await eventually_async(lambda: seen.messages)
    assert seen.bodies == [b"2"]


@pytest.mark.parametrize("how", ["cancel", "close", "stop"])
async def test_however_run_ends_it_drains(
    name_server: str, topics: Topics, feeder: RawProducer, how: str
) -> None:
    topic, begun, finished = topics(queues=1), asyncio.Event(), asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        begun.set()
        await asyncio.sleep(0.05)
        finished.set()

    made = consumer(name_server, topic, handle)
    feeder.feed(topic, [b"1"])
    running = asyncio.create_task(made.run())
    await begun.wait()
    if how == "cancel":
        running.cancel()
    elif how == "close":
        await made.close()
    else:
        made.stop()
    await asyncio.wait([running])
    assert running.cancelled() is (how == "cancel")
    assert finished.is_set()
    assert made.state is ServiceState.SHUTDOWN_ALREADY


SCRIPT = """
import asyncio, sys
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer

async def main():
    consumer = PushConsumer(
        sys.argv[2], name_server=sys.argv[1], options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )
    @consumer.subscribe(sys.argv[3])
    async def handle(messages):
        print("begun", flush=True)
        await asyncio.sleep(0.5)
        print("finished", flush=True)
    await consumer.run()
    print("left", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(
    name_server: str, topics: Topics, feeder: RawProducer, number: signal.Signals
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"1"])
    command = [sys.executable, "-c", SCRIPT, name_server, unique("group"), topic]
    with ForkedCommand(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.read() == "finished\nleft\n"
        assert process.wait(20) == 0


MANUAL = """
import asyncio
from firearrow.client import (
    ConsumeFromWhere, ConsumeResult, Message, Producer, PushConsumer, PushConsumerOptions,
)

async def main():
    async with Producer("orders-producer", name_server="127.0.0.1:9876") as producer:
        receipt = await producer.send(Message("orders", b"hello", tags="new", keys=["42"]))

    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer("orders-consumer", name_server="127.0.0.1:9876", options=options)
    @consumer.subscribe("orders", tags="new || paid")
    async def handle(messages):
        ...
        return ConsumeResult.SUCCESS        # or RETRY_LATER; an exception is RETRY_LATER
    await consumer.run()                     # until stopped; SIGTERM drains

asyncio.run(main())
"""


def test_the_manuals_program_runs_as_printed(name_server: str) -> None:
    statement = "print(messages[0].body, messages[0].keys, flush=True)"
    program = MANUAL.replace("127.0.0.1:9876", name_server).replace("...", statement)
    with ForkedCommand([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "b'hello' ('42',)\n"
        process.terminate()
        assert process.wait(20) == 0
