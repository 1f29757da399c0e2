"""Faults: brokers and processes that die, slow handlers, messages that cannot be read, cancellation, a stop at work."""

import asyncio
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage

from firearrow.client import ConsumeFromWhere, LocalBroker, Message, Producer, ProducerOptions
from firearrow.client.base import compression
from firearrow.client.integrations.faststream import RocketMQBroker, RocketMQMessage
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.integrations.faststream.conftest import started
from tests.integrations.faststream.test_acknowledgement import dead_letters
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


async def test_a_restart_of_the_broker_loses_nothing(tmp_path: Path) -> None:
    """Killed while messages are in flight, and started again on its store."""
    with LocalBroker(tmp_path / "store") as peer:
        broker = RocketMQBroker(peer.name_server, group=unique("app"), logger=None)
        found: Counter[int] = Counter()

        @broker.subscriber("numbers", max_workers=4, invisible_s=2, from_where=ConsumeFromWhere.FIRST_OFFSET)
        async def handle(number: int) -> None:
            await asyncio.sleep(0.01)
            found[number] += 1

        async with started(broker):
            await broker.publish_batch(*range(100), topic="numbers")
            await eventually_async(lambda: len(found) > 20)
            peer.kill()
            await asyncio.to_thread(peer.start)
            await eventually_async(lambda: broker.ping(timeout=1), 60)
            await broker.publish_batch(*range(100, 150), topic="numbers")
            await eventually_async(lambda: len(found) == 150, 60, what=lambda: sorted(found))


async def test_an_acknowledgement_waits_for_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path / "store") as peer:
        broker = RocketMQBroker(peer.name_server, group="app", logger=logging.getLogger("shop"))
        found: list[str] = []

        @broker.subscriber("words", from_where=ConsumeFromWhere.FIRST_OFFSET)
        async def handle(word: str) -> None:
            found.append(word)
            if word == "down":
                peer.kill()

        async with started(broker):
            await broker.publish("down", "words")
            await eventually_async(lambda: found)
            await asyncio.to_thread(peer.start)
            await eventually_async(lambda: broker.ping(timeout=1), 60)
            await broker.publish("up", "words")
            await eventually_async(lambda: len(found) == 2, 60)
    assert found == ["down", "up"]
    assert not [
        record for record in caplog.records if record.name == "shop" and record.levelno >= logging.ERROR
    ]


async def test_an_application_starts_before_the_broker(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as peer:
        peer.kill()
        broker = RocketMQBroker(peer.name_server, group=unique("app"), logger=None)
        found: list[str] = []

        @broker.subscriber("late")
        async def handle(body: str) -> None:
            found.append(body)

        async with started(broker):
            assert not await broker.ping(timeout=0.2)
            await asyncio.to_thread(peer.start)
            await eventually_async(lambda: broker.ping(timeout=1), 60)
            await broker.publish("hello", "late")
            await eventually_async(lambda: found, 60)


WORKER = """
import asyncio, os, sys
from faststream import FastStream
from firearrow.client import ConsumeFromWhere
from firearrow.client.integrations.faststream import RocketMQBroker
broker = RocketMQBroker(logger=None)
@broker.subscriber(sys.argv[1], group=sys.argv[2], invisible_s=2, from_where=ConsumeFromWhere.FIRST_OFFSET)
async def handle(body: str) -> None:
    print(body, flush=True)
    await asyncio.sleep(600)
asyncio.run(FastStream(broker, logger=None).run())
"""


async def test_the_messages_of_a_killed_process_go_to_another(
    broker: RocketMQBroker, name_server: str, topics: Topics
) -> None:
    """Also those that it had fetched ahead, after the invisible time."""
    topic, group, found = topics(), unique("group"), set[str]()
    await broker.connect()
    await broker.publish_batch("a", "b", "c", topic=topic)
    environment = os.environ | {"NAMESRV_ADDR": name_server}
    command = [sys.executable, "-c", WORKER, topic, group]
    worker = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    assert worker.stdout is not None
    assert (await worker.stdout.readline()).strip() in {b"a", b"b", b"c"}
    worker.kill()
    await worker.wait()

    @broker.subscriber(topic, group=group)
    async def handle(body: str) -> None:
        found.add(body)

    async with started(broker):
        await eventually_async(lambda: found == {"a", "b", "c"}, 60)


async def test_a_handler_slower_than_the_invisible_time_keeps_its_message(
    broker: RocketMQBroker, topics: Topics
) -> None:
    """And those that wait for it: two members, no message twice."""
    topic, group, came, done = topics(1), unique("slow"), list[str](), list[str]()

    def member(of: RocketMQBroker) -> None:
        @of.subscriber(topic, group=group, invisible_s=1)
        async def handle(body: str) -> None:
            came.append(body)
            await asyncio.sleep(2.5)
            done.append(body)

    other = RocketMQBroker(broker.specification.url, group=unique("other"), logger=None)
    member(broker)
    member(other)
    async with started(broker):
        await broker.publish_batch("a", "b", topic=topic)
        await eventually_async(lambda: came)
        async with started(other):
            await eventually_async(lambda: len(done) >= 2)
    assert sorted(came) == ["a", "b"]


async def test_a_stop_waits_for_handlers_and_releases_the_others(
    broker: RocketMQBroker, topics: Topics
) -> None:
    topic, group = topics(1), unique("stopped")
    begun, done, others = list[int](), list[int](), list[int]()

    @broker.subscriber(topic, group=group)
    async def handle(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(1)
        done.append(number)

    other = RocketMQBroker(broker.specification.url, group=unique("other"), logger=None)

    @other.subscriber(topic, group=group)
    async def take_over(number: int) -> None:
        others.append(number)

    async with started(broker):
        await broker.publish_batch(*range(10), topic=topic)
        await eventually_async(lambda: begun)
    assert begun == done
    async with started(other):
        await eventually_async(lambda: len(done) + len(others) >= 10, 20)
    assert sorted(done + others) == list(range(10))


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.ACK_FIRST])
async def test_a_handler_that_does_not_end_is_cancelled(
    name_server: str, topics: Topics, policy: AckPolicy
) -> None:
    """Another member gets the message at once, unless it was acknowledged."""
    broker = RocketMQBroker(name_server, group=unique("app"), logger=None, graceful_timeout=0.5)
    topic, group, events, others = topics(1), unique("hanging"), list[str](), list[str]()

    @broker.subscriber(topic, group=group, ack_policy=policy)
    async def handle(body: str) -> None:
        events.append("begun")
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    async with started(broker):
        await broker.publish("x", topic)
        await eventually_async(lambda: events)
    assert events == ["begun", "cancelled"]
    other = RocketMQBroker(name_server, group=unique("other"), logger=None)

    @other.subscriber(topic, group=group)
    async def take_over(body: str) -> None:
        others.append(body)

    async with started(other):
        await other.publish("next", topic)
        await eventually_async(
            lambda: set(others) >= ({"next"} if policy is AckPolicy.ACK_FIRST else {"next", "x"})
        )
        await asyncio.sleep(2)
    assert sorted(others) == (["next"] if policy is AckPolicy.ACK_FIRST else ["next", "x"])


async def test_a_body_that_is_not_what_the_handler_wants_is_a_dead_letter_in_the_end(
    broker: RocketMQBroker, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """Others of the topic are handled meanwhile."""
    topic, group, found = topics(1), unique("strict"), list[int]()

    @broker.subscriber(topic, group=group, retry_delay_s=0.2, max_reconsume_times=1)
    async def handle(number: int) -> None:
        found.append(number)

    async with started(broker):
        feeder.feed(topic, [b"\xff\xfe", b"{", b"1"], **{"content-type": "application/json"})
        letters = await dead_letters(name_server, group, 2)
    assert {letter.body for letter in letters} == {b"\xff\xfe", b"{"}
    assert found == [1]


async def test_a_body_that_cannot_be_decompressed_is_a_dead_letter_in_the_end(
    broker: RocketMQBroker, name_server: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group, found = topics(1), unique("unreadable"), list[str]()

    @broker.subscriber(topic, group=group, retry_delay_s=0.2, max_reconsume_times=1)
    async def handle(body: str) -> None:
        found.append(body)

    async with started(broker):
        broken = compression.pack
        options = ProducerOptions(compress_over_bytes=1)
        async with Producer(unique("broken"), name_server=name_server, options=options) as producer:
            with monkeypatch.context() as patch:
                patch.setattr(
                    "firearrow.client.send.prepare.pack",
                    lambda kind, level, body: (broken(kind, level, body)[0], b"not zlib"),
                )
                await producer.send(Message(topic, b"x" * 100))
            await producer.send(Message(topic, b"good"))
        await eventually_async(lambda: found)
        [letter] = await dead_letters(name_server, group)
    assert letter.body_bytes == len(b"not zlib")
    assert found == ["good"]


async def test_the_log_names_the_subscriber_that_cannot_fetch(
    name_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = RocketMQBroker(name_server, group=unique("app"), logger=logging.getLogger("shop"))
    missing = unique("missing")

    @broker.subscriber(missing, group="lonely")
    async def handle(body: str) -> None: ...

    def lines() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "cannot be fetched" in record.message]

    with caplog.at_level(logging.INFO):
        async with started(broker):
            await eventually_async(lines)
    assert vars(lines()[0]).items() >= {"topic": missing, "group": "lonely"}.items()


async def test_large_bodies_and_strange_headers(
    broker: RocketMQBroker, topics: Topics, feeder: RawProducer
) -> None:
    topic, found = topics(1), list[RocketMQMessage]()

    @broker.subscriber(topic)
    async def handle(message: RocketMQMessage) -> None:
        found.append(message)

    large = os.urandom(3 << 20)
    names = {"a name with spaces": "ü€ 😀", "quote\"'": "line\nbreak"}
    async with started(broker):
        await broker.publish(large, topic, headers=names)
        feeder.feed(topic, [b"foreign"], latin="caf\udce9")
        await eventually_async(lambda: len(found) == 2)
    by_body = {message.body: message.headers for message in found}
    assert by_body[large].items() >= names.items()
    assert by_body[b"foreign"]["latin"].startswith("caf")


async def test_cancelled_publishing_does_no_harm(broker: RocketMQBroker, topics: Topics) -> None:
    """Each message is sent once or not at all, and what is published later arrives."""
    topic, found = topics(), Counter[str]()

    @broker.subscriber(topic, max_workers=20)
    async def handle(body: str) -> None:
        found[body] += 1

    async with started(broker):
        await broker.publish("warm", topic)
        for number in range(30):
            task = asyncio.create_task(broker.publish(f"cancelled-{number}", topic))
            await asyncio.sleep(0.0005 * (number % 5))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await broker.publish("last", topic)
        await eventually_async(lambda: found["last"] and found["warm"])
    assert set(found.values()) == {1}


async def test_many_messages_by_many_workers_of_two_processes(broker: RocketMQBroker, topics: Topics) -> None:
    """Some fail once. Each is handled at least once, and none is lost."""
    topic, group, handled = topics(8), unique("many"), Counter[int]()

    def member(of: RocketMQBroker) -> None:
        @of.subscriber(topic, group=group, max_workers=16, retry_delay_s=0.5)
        async def handle(number: int, message: RocketMQMessage) -> None:
            if number % 50 == 0 and message.raw_message.reconsume_times == 0:
                raise NackMessage
            handled[number] += 1

    other = RocketMQBroker(broker.specification.url, group=unique("other"), logger=None)
    member(broker)
    member(other)
    async with started(broker), started(other):
        await broker.publish_batch(*range(1000), topic=topic)
        await eventually_async(lambda: len(handled) == 1000, 60)
    assert sum(handled.values()) == 1000
