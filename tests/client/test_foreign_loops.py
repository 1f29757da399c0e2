"""Objects used in another event loop, without one, or after a fork: refused before anything is sent."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions, PullConsumerOptions
from firearrow.client.base.service_state import Startable
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.pushing import Seen
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually_async
from tests.support.forked import forked

Topics = Callable[..., str]
Uses = dict[str, Callable[[], object]]
FIRST = ConsumeFromWhere.FIRST_OFFSET


class Objects:
    """One of each, started; `uses` are all the ways to make one of them send something."""

    def __init__(self, name_server: str, topic: str) -> None:
        self.topic = topic
        self.seen = Seen()
        self.producer = Producer(
            unique("p"), name_server=name_server, checker=lambda message: TransactionState.ROLLBACK
        )
        self.push = PushConsumer(unique("push"), name_server=name_server)
        self.push.subscribe(topic, self.seen)
        self.pull = PullConsumer(
            unique("pull"), name_server=name_server, options=PullConsumerOptions(from_where=FIRST)
        )
        self.pull.subscribe(topic)
        self.pop = PopConsumer(
            unique("pop"), name_server=name_server, options=PopConsumerOptions(from_where=FIRST)
        )
        self.pop.subscribe(topic)
        self.admin = Admin(name_server)
        self.all: list[Startable] = [self.producer, self.push, self.pull, self.pop, self.admin]

    def uses(self) -> Uses:
        message = Message(self.topic, b"from elsewhere")
        queue = MessageQueue(self.topic, "broker-a", 0)
        producer, push, pull, pop, admin = self.producer, self.push, self.pull, self.pop, self.admin
        return {
            "send": lambda: producer.send(message),
            "submit": lambda: producer.submit(message),
            "send_oneway": lambda: producer.send_oneway(message),
            "send_batch": lambda: producer.send_batch([message]),
            "request": lambda: producer.request(message),
            "transaction": lambda: producer.send_in_transaction(message, lambda m, a: None),
            "queues": lambda: producer.queues(self.topic),
            "subscribe": lambda: push.subscribe(self.topic, self.seen, tags="x"),
            "unsubscribe": lambda: push.unsubscribe(self.topic),
            "pause": push.pause,
            "resume": push.resume,
            "poll": lambda: pull.poll(0.1),
            "commit": pull.commit,
            "assign": lambda: pull.subscribe(self.topic, tags="x"),
            "seek": lambda: pull.seek_to_end(queue),
            "receive": lambda: pop.receive(wait_s=0.1),
            "pop subscribe": lambda: pop.subscribe(self.topic, tags="x"),
            "topics": admin.topics,
            "update_offset": lambda: admin.update_offset("g", queue, 0),
            "tracks": lambda: Operations(admin).message_tracks(SimpleNamespace(topic=self.topic)),
            **{f"close {type(one).__name__}": one.close for one in self.all},
        }


async def refused(uses: Uses) -> list[str]:
    """The names of those that were not."""
    allowed = []
    for name, use in uses.items():
        try:
            result = use()
            if isinstance(result, Awaitable):
                await result
        except NotRunning:
            continue
        except Exception as error:
            name = f"{name}: {error!r}"  # noqa: PLW2901
        allowed.append(name)
    return allowed


def in_thread(work: Callable[[], Coroutine[Any, Any, list[str]]]) -> list[str]:
    results: list[list[str]] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(work())))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("where", ["another loop", "no loop", "fork, another loop"])
async def test_nothing_is_sent_from_elsewhere(
    name_server: str, topics: Topics, feeder: RawProducer, where: str
) -> None:
    topic = topics(queues=1)
    objects = Objects(name_server, topic)
    for one in objects.all:
        await one.start()
    await objects.producer.send(Message(topic, b"from here"))
    uses = objects.uses()
    if where == "another loop":
        assert await asyncio.to_thread(in_thread, lambda: refused(uses)) == []
    elif where == "no loop":
        plain = {name: uses[name] for name in ("submit", "subscribe", "unsubscribe", "pause", "assign")}

        def use_plainly() -> list[str]:
            return [name for name, use in plain.items() if not _is_refused(use)]

        assert await asyncio.to_thread(use_plainly) == []
    else:
        text = await asyncio.to_thread(forked, lambda: repr(in_thread(lambda: refused(uses))))
        assert text == "[]"
    result = await objects.producer.send(Message(topic, b"still works"))
    assert result.queue_offset == 1, "nothing was sent in between"
    assert await objects.admin.consumers(objects.pull.group), "no member was unregistered"
    for one in objects.all:
        await one.close()
        await one.close()


def _is_refused(use: Callable[[], object]) -> bool:
    try:
        use()
    except NotRunning:
        return True
    return False


def test_a_loop_that_a_child_inherits_is_another_one(name_server: str, topics: Topics) -> None:
    """The child runs the parent's loop object, but must not use its sockets."""
    topic = topics(queues=1)
    with asyncio.Runner() as runner:
        producer = Producer(unique("p"), name_server=name_server)
        runner.run(producer.start())
        runner.run(producer.send(Message(topic, b"0")))

        def send() -> list[str]:
            loop = runner.get_loop()
            return loop.run_until_complete(refused({"send": lambda: producer.send(Message(topic, b"1"))}))

        assert forked(lambda: repr(send())) == "[]"
        assert runner.run(producer.send(Message(topic, b"1"))).queue_offset == 1
        runner.run(producer.close())


async def test_stop_works_from_a_handlers_thread(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    made = PushConsumer(unique("g"), name_server=name_server)
    made.subscribe(topic, lambda messages: made.stop())
    running = asyncio.create_task(made.run())
    await eventually_async(lambda: made.queues)
    feeder.feed(topic, [b"x"])
    async with asyncio.timeout(10):
        await running


async def test_errors_say_what_to_do(name_server: str) -> None:
    producer = Producer(unique("p"), name_server=name_server)
    with pytest.raises(NotRunning, match=r"the producer is not started yet .*: use `async with`"):
        await producer.send(Message("t", b"x"))
    await producer.start()
    with pytest.raises(NotRunning, match="cannot be started, it is running"):
        await producer.start()
    with pytest.raises(NotRunning, match=r"belongs to the event loop in which it was started.*blocking"):
        await asyncio.to_thread(producer.submit, Message("t", b"x"))
    await producer.close()
    with pytest.raises(NotRunning, match=r"the producer is closed .*: create another one"):
        await producer.send(Message("t", b"x"))
