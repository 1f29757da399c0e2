"""taskiq's broker against FireArrow's broker and Apache's: workers run in this process, as taskiq's Receiver."""

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest

pytest.importorskip("taskiq")

from taskiq import (
    Context,
    SimpleRetryMiddleware,
    SmartRetryMiddleware,
    TaskiqDepends,
    TaskiqMessage,
    TaskiqMiddleware,
    TaskiqScheduler,
)
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.cli.scheduler.run import SchedulerLoop
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver
from taskiq.schedule_sources import LabelScheduleSource

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, ConfigError, NotRunning
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.integrations.taskiq import RocketMQBroker, TaskOptions
from firearrow.client.send.producer import Producer
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

QUICK = TaskOptions(invisible_s=2)


def made(site: Peer, name: str, options: TaskOptions = QUICK, **others: object) -> RocketMQBroker:
    broker = RocketMQBroker(
        site.name_server, queue_name=name, consumer_group_name=name, options=options, **others
    )
    return broker.with_result_backend(InmemoryResultBackend())


@asynccontextmanager
async def worker(broker: RocketMQBroker, **receiver: object) -> AsyncIterator[Receiver]:
    """What `taskiq worker` runs in each of its processes."""
    finish = asyncio.Event()
    running = Receiver(broker, run_startup=False, **({"max_async_tasks": 20} | receiver))
    listening = asyncio.create_task(running.listen(finish))
    try:
        yield running
    finally:
        finish.set()
        await listening


async def test_tasks_run_once_and_have_results(every_site: Peer, name: str) -> None:
    broker = made(every_site, name)
    handled: list[int] = []

    @broker.task
    async def double(number: int) -> int:
        handled.append(number)
        return 2 * number

    await broker.startup()
    sent = [await double.kiq(number) for number in range(50)]
    async with worker(broker):
        results = [await each.wait_result(timeout=30) for each in sent]
    assert [result.return_value for result in results] == [2 * number for number in range(50)]
    assert sorted(handled) == list(range(50))
    async with Admin(name_server=every_site.name_server) as admin:
        assert (await admin.consumer_lag(name, name)).messages == 0
        [message] = await admin.messages_by_key(name, sent[7].task_id)
        assert message.tags == double.task_name
    await broker.shutdown()


async def test_the_delay_label_is_a_timer_of_the_broker(every_site: Peer, name: str) -> None:
    broker = made(every_site, name)
    ran: dict[str, float] = {}

    @broker.task(delay=3)
    async def note(what: str) -> None:
        ran[what] = time.time()

    await broker.startup()
    sent_s = time.time()
    await note.kiq("three")
    await note.kicker().with_labels(delay=1.5).kiq("one")
    await note.kicker().with_labels(delay=None).kiq("now")
    async with Admin(name_server=every_site.name_server) as admin:
        assert (await admin.consumer_lag(name, name)).messages <= 1  # brokers keep the others
    async with worker(broker):
        await eventually_async(lambda: len(ran) == 3)
    assert list(ran) == ["now", "one", "three"]
    assert ran["one"] - sent_s >= 1.5
    assert ran["three"] - sent_s >= 3
    await broker.shutdown()


async def test_a_task_that_is_due_after_the_longest_timer_is_sent_on(site: Peer, name: str) -> None:
    broker = made(site, name, TaskOptions(timer_max_s=1))
    ran: list[float] = []

    @broker.task
    async def note() -> None:
        ran.append(time.time())

    await broker.startup()
    due_s = time.time() + 4
    await note.kicker().with_labels(delay=4).kiq()
    async with worker(broker):
        await eventually_async(lambda: ran)
    assert len(ran) == 1
    assert ran[0] >= due_s
    async with Admin(name_server=site.name_server) as admin:
        stored = (await admin.topic_stats(name)).values()
    assert sum(queue.max_offset for queue in stored) >= 2
    await broker.shutdown()


async def test_a_task_is_sent_on_also_if_a_worker_died_that_had_it(site: Peer, name: str) -> None:
    """Weeks before it is due. It stays the same message."""
    broker = made(site, name, TaskOptions(timer_max_s=1))
    ran: list[int] = []

    @broker.task
    async def note() -> None:
        ran.append(1)

    await broker.startup()
    sent = await note.kicker().with_labels(delay=10**6).kiq()
    options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with PopConsumer(name, name_server=site.name_server, options=options) as dies:
        dies.subscribe(name)
        [message] = await dies.receive(1, wait_s=10)
        await dies.change_invisible(message, 0.1)
    async with worker(broker), Admin(name_server=site.name_server) as admin:

        async def was_sent_on() -> bool:
            stored = await admin.messages_by_key(name, sent.task_id)
            assert {each.get_property("UNIQ_KEY") for each in stored} == {message.get_property("UNIQ_KEY")}
            return len(stored) >= 3

        await eventually_async(was_sent_on)
    assert not ran
    await broker.shutdown()


async def test_a_task_may_take_longer_than_the_invisible_time(site: Peer, name: str) -> None:
    quick = TaskOptions(invisible_s=1)
    one, two = made(site, name, quick), made(site, name, quick)
    started: list[str] = []

    async def slow() -> None:
        started.append("slow")
        await asyncio.sleep(2.5)

    for each in (one, two):
        each.register_task(slow, task_name="slow")

    await one.startup()
    await two.startup()
    task = await one.find_task("slow").kiq()

    async def results() -> int:
        return sum([await each.result_backend.is_result_ready(task.task_id) for each in (one, two)])

    async with worker(one), worker(two):
        await eventually_async(results)
    assert len(started) == 1
    assert await results() == 1
    await one.shutdown()
    await two.shutdown()


async def test_what_a_worker_does_not_acknowledge_becomes_a_dead_letter_at_last(
    site: Peer, name: str
) -> None:
    """Each worker ends without an acknowledgement, as one that is killed."""
    options = TaskOptions(invisible_s=1, max_attempts=2)
    broker = made(site, name, options)
    await broker.startup()
    task = broker.register_task(lambda: None, task_name="poison")
    await task.kiq()
    for _ in range(options.max_attempts):
        listening = broker.listen()
        async with asyncio.timeout(30):
            message = await anext(listening)
        assert b"poison" in message.data
        await listening.aclose()
        await broker.shutdown()
        await broker.startup()
    async with worker(broker), Admin(name_server=site.name_server) as admin:

        async def dead() -> int:
            if f"%DLQ%{name}" not in await admin.topics():
                return 0
            stats = await admin.topic_stats(f"%DLQ%{name}")
            return sum(queue.max_offset for queue in stats.values())

        assert await eventually_async(dead, 30) == 1
    await broker.shutdown()


async def test_when_tasks_are_acknowledged(site: Peer, name: str) -> None:
    """`when_received`, and by the task itself. Then the worker ends, and what is not acknowledged comes again."""
    broker = made(site, name, TaskOptions(invisible_s=1))
    ran: list[str] = []

    @broker.task(ack_type="when_received")
    async def received() -> None:
        ran.append("received")
        await asyncio.sleep(60)

    @broker.task(ack_type="manual")
    async def manual(ack: bool, context: Annotated[Context, TaskiqDepends()]) -> None:
        ran.append(f"manual {ack}")
        if ack:
            await context.ack()

    await broker.startup()
    await received.kiq()
    await manual.kiq(True)
    await manual.kiq(False)
    async with worker(broker, wait_tasks_timeout=0.1):
        await eventually_async(lambda: len(ran) == 3)
    await broker.shutdown()
    assert sorted(ran) == ["manual False", "manual True", "received"]
    ran.clear()
    await broker.startup()
    async with worker(broker, wait_tasks_timeout=0.1):
        await eventually_async(lambda: ran)
        await asyncio.sleep(0.5)
    await broker.shutdown()
    assert ran == ["manual False"]


@pytest.mark.parametrize(
    ("middleware", "pause_s"), [(SimpleRetryMiddleware(), 0), (SmartRetryMiddleware(default_delay=1), 1)]
)
async def test_failed_tasks_are_tried_again_by_the_middlewares(
    site: Peer, name: str, middleware: TaskiqMiddleware, pause_s: float
) -> None:
    broker = made(site, name).with_middlewares(middleware)
    ran: list[float] = []

    @broker.task(retry_on_error=True, max_retries=3)
    async def fail_twice() -> str:
        ran.append(time.time())
        if len(ran) < 3:
            raise ValueError("not yet")
        return "done"

    await broker.startup()
    task = await fail_twice.kiq()
    async with worker(broker):
        result = await task.wait_result(timeout=30)
    assert result.return_value == "done"
    first, second, third = ran
    assert min(second - first, third - second) >= pause_s
    await broker.shutdown()


@pytest.mark.parametrize("odd", ["mail.high", "büro/äpfel 1", "TBW102", "%RETRY%x"])
async def test_queues_may_have_any_name(site: Peer, name: str, odd: str) -> None:
    queue = f"{odd}{name}" if odd != "TBW102" else odd
    broker = RocketMQBroker(
        site.name_server, queue_name=name, additional_queues=[queue], consumer_group_name=f"{odd} {name}"
    )
    ran: list[str] = []

    @broker.task
    async def note(what: str) -> None:
        ran.append(what)

    await broker.startup()
    await note.kiq("here")
    await note.kicker().with_labels(queue_name=queue).kiq("there")
    async with worker(broker):
        await eventually_async(lambda: sorted(ran) == ["here", "there"])
    await broker.shutdown()


async def test_tasks_with_priority_go_first(site: Peer, name: str) -> None:
    broker = made(site, name, TaskOptions(max_priority=5), prefetch=1)
    ran: list[int] = []

    @broker.task(priority=2)
    async def note(what: int) -> None:
        ran.append(what)

    await broker.startup()
    for priority in (1, 5, 0, 9, 3):
        await note.kicker().with_labels(priority=priority).kiq(priority)
    await note.kiq(2)
    await note.kicker().with_labels(priority=None).kiq(-1)
    async with worker(broker):
        await eventually_async(lambda: len(ran) == 7)
    assert sorted(ran[:2]) == [5, 9]
    assert ran[2:5] == [3, 2, 1]
    assert sorted(ran[5:]) == [-1, 0]
    await broker.shutdown()


async def test_a_stopped_worker_neither_loses_nor_doubles_tasks(site: Peer, name: str) -> None:
    """It ends the tasks that run, and returns those that wait in it."""
    broker = made(site, name, TaskOptions(invisible_s=30))
    ran: list[int] = []

    @broker.task
    async def slow(number: int) -> None:
        await asyncio.sleep(0.05)
        ran.append(number)

    await broker.startup()
    for number in range(60):
        await slow.kiq(number)
    stops = 0
    while len(ran) < 60 and stops < 20:
        before = len(ran)
        async with worker(broker, max_prefetch=5):
            await eventually_async(lambda: len(ran) >= min(before + 15, 60))  # noqa: B023
        stops += 1
    await broker.shutdown()
    assert stops > 1
    assert sorted(ran) == list(range(60))


async def test_payloads_of_strangers_do_not_stop_a_worker(site: Peer, name: str) -> None:
    broker = made(site, name)
    ran: list[str] = []

    @broker.task
    async def note(what: str) -> None:
        ran.append(what)

    await broker.startup()
    hostile = [b"", b"\xff\xfe", b"[1]", b"{}", pickle.dumps(print), b"[" * 100_000]
    async with Producer(name, name_server=site.name_server) as producer:
        for body in hostile:
            await producer.send(Message(name, body, properties={"TASK_DUE_MS": "9" * 400}))
        await producer.send(Message(name, b"{}", properties={"TASK_DUE_MS": "-1"}))
        far = {"TASK_DUE_MS": str(int((time.time() + 1e6) * 1000))}
        body = broker.serializer.dumpb(message_of(note.task_name, "far"))
        await producer.send(Message(name, body, properties=far))
    await note.kiq("well")
    async with worker(broker):
        await eventually_async(lambda: "well" in ran)
        async with Admin(name_server=site.name_server) as admin:
            assert (await admin.consumer_lag(name, name)).messages == 0
    await broker.shutdown()


async def test_a_task_that_taskiq_does_not_acknowledge_comes_again(site: Peer, name: str) -> None:
    """Its middleware raises, or it did not acknowledge itself."""
    ran: Counter[str] = Counter()

    class Raises(TaskiqMiddleware):
        def post_execute(self, message: TaskiqMessage, _: object) -> None:
            if ran[message.task_name] == 1 and message.task_name == "raises":
                raise ValueError

    broker = made(site, name, TaskOptions(invisible_s=1)).with_middlewares(Raises())

    @broker.task(task_name="raises")
    async def raises() -> None:
        ran["raises"] += 1

    @broker.task(task_name="forgets", ack_type="manual")
    async def forgets(context: Annotated[Context, TaskiqDepends()]) -> None:
        ran["forgets"] += 1
        if ran["forgets"] > 1:
            await context.ack()

    await broker.startup()
    await raises.kiq()
    await forgets.kiq()
    async with worker(broker), Admin(name_server=site.name_server) as admin:
        await eventually_async(lambda: ran == {"raises": 2, "forgets": 2})

        async def left() -> int:
            return (await admin.consumer_lag(name, name)).messages

        await eventually_async(lambda: not broker._consumer or broker._consumer.held == 0)
        assert await left() == 0
    await broker.shutdown()


def message_of(task_name: str, *args: object) -> dict[str, object]:
    return TaskiqMessage(task_id="1", task_name=task_name, labels={}, args=[*args], kwargs={}).model_dump()


async def test_errors_state_what_to_do(site: Peer, name: str) -> None:
    broker = made(site, name, TaskOptions(create_topics=False))

    @broker.task
    async def note() -> None: ...

    with pytest.raises(SendTaskError) as not_started:
        await note.kiq()
    assert isinstance(not_started.value.__cause__, NotRunning)
    await broker.startup()
    with pytest.raises(SendTaskError) as no_topic:
        await note.kiq()
    assert f"topic {name} does not exist: create it (`firearrow topic create {name}`)" in str(
        no_topic.value.__cause__
    )
    for labels in (
        {"delay": "soon"},
        {"delay": "nan"},
        {"delay": 1e16},  # has more digits than a worker reads: the task would come too early
        {"delay": 1e307},
        {"priority": "high"},
    ):
        with pytest.raises(SendTaskError) as no_number:
            await note.kicker().with_labels(**labels).kiq()
        assert isinstance(no_number.value.__cause__, ConfigError)
    with pytest.raises(NotRunning):
        await broker.startup()
    await broker.shutdown()
    broker.is_worker_process = True
    with pytest.raises(ClientError, match="does not exist"):
        await broker.startup()
    await broker.shutdown()
    with pytest.raises(ConfigError):
        RocketMQBroker(site.name_server, prefetch=0)
    with pytest.raises(ConfigError):
        TaskOptions(invisible_s=0.1)


async def test_scheduled_tasks(site: Peer, name: str) -> None:
    broker = made(site, name)
    ran: list[str] = []

    @broker.task(schedule=[{"interval": 1, "args": ["tick"]}])
    async def note(what: str) -> None:
        ran.append(what)

    scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])
    for source in scheduler.sources:
        await source.startup()
    await scheduler.startup()
    running = asyncio.create_task(SchedulerLoop(scheduler).run())
    async with worker(broker):
        await eventually_async(lambda: len(ran) >= 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await scheduler.shutdown()
    assert set(ran) == {"tick"}
