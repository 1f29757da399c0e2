"""Events and `health`: what a producer or consumer reports of its connections, queues and errors."""

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow.client import blocking
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, NoRoute
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PullConsumerOptions
from firearrow.client.base.reports import ConnectionDown, ConnectionUp, Event, QueuesAssigned, QueuesRevoked
from firearrow.client.base.service_state import ServiceState, now_ms
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.local_broker import LocalBroker
from firearrow.client.remoting import connection_states
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.consumers import Topics, consumer
from tests.client.raw_producer import RawProducer
from tests.support.eventually import eventually, eventually_async

Service = Producer | PushConsumer | PullConsumer | PopConsumer
PULL = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
QUICK = {"poll_name_server_s": 0.3, "heartbeat_s": 0.3, "rebalance_s": 0.3}


class Recorder:
    """A listener that is a coroutine function."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def changes(self, address: str) -> list[type[Event]]:
        """Of the connection to this server."""
        return [
            type(event)
            for event in self.events
            if isinstance(event, ConnectionDown | ConnectionUp) and event.address == address
        ]

    def owned(self, topic: str) -> set[MessageQueue]:
        """The queues of the topic by these events."""
        owned: set[MessageQueue] = set()
        for event in self.events:
            if isinstance(event, QueuesAssigned):
                assert not owned & event.queues
                owned |= event.queues
            elif isinstance(event, QueuesRevoked):
                assert owned >= event.queues
                owned -= event.queues
        return {queue for queue in owned if queue.topic == topic}


def pull_consumer(name_server: str, topic: str, group: str) -> PullConsumer:
    made = PullConsumer(group, name_server=name_server, options=PULL)
    made.subscribe(topic)
    return made


def push_consumer(name_server: str, topic: str, group: str) -> PushConsumer:
    made = consumer(name_server, group)
    made.subscribe(topic, lambda messages: None)
    return made


@pytest.mark.parametrize("make", [push_consumer, pull_consumer])
async def test_queues_are_reported_as_members_come_and_go(
    name_server: str, topics: Topics, make: Callable[[str, str, str], PushConsumer | PullConsumer]
) -> None:
    topic, group, first, second = topics(queues=4), unique("group"), Recorder(), Recorder()
    one, other = make(name_server, topic, group), make(name_server, topic, group)
    one.on_event(first)
    other.on_event(second)
    async with one:
        await eventually_async(lambda: len(first.owned(topic)) == 4)
        assert {queue for queue in one.health.queues if queue.topic == topic} == first.owned(topic)
        async with other:
            await eventually_async(lambda: len(first.owned(topic)) == len(second.owned(topic)) == 2)
            assert not first.owned(topic) & second.owned(topic)
        assert second.owned(topic) == set(), "a close reports what it releases"
        await eventually_async(lambda: len(first.owned(topic)) == 4)
    assert first.owned(topic) == set()
    assert one.health.queues == frozenset()


async def test_assigned_and_unsubscribed_queues_are_reported(name_server: str, topics: Topics) -> None:
    topic, other, seen = topics(queues=2), topics(queues=1), Recorder()
    async with PullConsumer(unique("group"), name_server=name_server, options=PULL) as member:
        member.on_event(seen)
        queues = await member.fetch_queues(topic)
        member.assign(queues[:1])
        member.assign(queues[1:])
        await eventually_async(lambda: seen.owned(topic) == set(queues[1:]))
        assert seen.events == [
            QueuesAssigned(frozenset(queues[:1])),
            QueuesRevoked(frozenset(queues[:1])),
            QueuesAssigned(frozenset(queues[1:])),
        ]
    subscribed = Recorder()
    async with pull_consumer(name_server, topic, unique("group")) as member:
        member.on_event(subscribed)
        member.subscribe(other)
        await eventually_async(lambda: subscribed.owned(other) != set())
        member.unsubscribe(topic)
        await eventually_async(lambda: subscribed.owned(topic) == set())
        assert subscribed.owned(other) != set()


async def test_names_of_queues_are_those_of_the_user(name_server: str, topics: Topics) -> None:
    group, seen = unique("group"), Recorder()
    topic = topics(queues=1)
    namespaced = ClientOptions(name_server=name_server, namespace="shop")
    async with Producer(unique("p"), client=namespaced) as producer:
        await producer.send(Message(topic, b"x"))
    member = PushConsumer(group, client=namespaced)
    member.subscribe(topic, lambda messages: None)
    member.on_event(seen)
    async with member:
        await eventually_async(lambda: seen.owned(topic) != set())


async def test_lost_and_regained_connections(firearrow_fresh_broker: LocalBroker) -> None:
    """Of all kinds, with one event for each change however often the connection is tried."""
    broker, topic = firearrow_fresh_broker, unique("topic")
    client = ClientOptions(name_server=broker.name_server, **QUICK)
    push, pull = PushConsumer("push", client=client), PullConsumer("pull", client=client)
    push.subscribe(topic, lambda messages: None)
    pull.subscribe(topic)
    services: list[Service] = [Producer("p", client=client), push, pull, PopConsumer("pop", client=client)]
    seen = [Recorder() for _ in services]
    for service, recorder in zip(services, seen, strict=True):
        service.on_event(recorder)
        await service.start()
    producer = services[0]
    assert isinstance(producer, Producer)
    await producer.send(Message(topic, b"x"))
    await eventually_async(lambda: all(service.health.brokers for service in services))
    [address] = producer.health.brokers
    assert producer.health.name_servers == (broker.name_server,)
    began_ms = now_ms()
    await asyncio.to_thread(broker.kill)
    await eventually_async(lambda: producer.health.down.keys() == {address, broker.name_server})
    health = producer.health
    assert (health.running, health.brokers, health.name_servers) == (True, (), ())
    assert all(began_ms <= since_ms <= now_ms() for since_ms in health.down.values())
    assert health.last_error is not None
    assert health.last_error_ms is not None
    with pytest.raises(ClientError):
        await producer.send(Message(topic, b"x"), timeout_s=1)
    await asyncio.to_thread(broker.start)
    await eventually_async(lambda: not producer.health.down)
    beaten_ms = now_ms()
    await eventually_async(lambda: (producer.health.last_heartbeat_ms or 0) >= beaten_ms)
    for recorder in seen:  # a dying process may accept a connection once more
        for one in (address, broker.name_server):
            await eventually_async(
                lambda recorder=recorder, one=one: recorder.changes(one)[-1:] == [ConnectionUp]
            )
            changes = recorder.changes(one)
            assert changes == [ConnectionDown, ConnectionUp] * (len(changes) // 2)
            assert len(changes) <= 4
    for service in services:
        await service.close()
        assert (service.health.running, service.health.brokers, service.health.down) == (False, (), {})


async def test_a_broker_that_no_route_names_any_more_is_not_down(
    firearrow_fresh_broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that shrinks: health is not bad for ever."""
    monkeypatch.setattr(connection_states, "LONG_S", 0.5)
    first, topic = firearrow_fresh_broker, unique("topic")
    arguments = ("--namesrv", first.name_server, "--namesrv-listen", "off")
    second = LocalBroker(tmp_path, settings={"brokerName": "second"}, arguments=arguments)
    client = ClientOptions(name_server=first.name_server, **QUICK)
    async with Admin(client=client) as admin:

        async def is_at_both() -> bool:
            return len(await admin.create_topic(topic, 1)) == 2

        await eventually_async(is_at_both)
    member = PushConsumer("g", client=client)
    member.subscribe(topic, lambda messages: None)
    async with member:
        seen = Recorder()
        member.on_event(seen)
        await eventually_async(lambda: second.address in member.health.brokers)
        await asyncio.to_thread(second.stop)
        await eventually_async(lambda: seen.of(ConnectionDown))
        await eventually_async(lambda: not member.health.down)
        assert member.health.brokers


async def test_health_of_each_state(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, failures = topics(queues=1), []
    member = consumer(name_server)

    @member.subscribe(topic)
    def fails(messages: object) -> None:
        failures.append(messages)
        raise ValueError("no such order")

    assert (member.health.state, member.health.running) == (ServiceState.CREATE_JUST, False)
    made_ms = member.health.since_ms
    async with member:
        await eventually_async(lambda: member.health.queues)
        feeder.feed(topic, [b"x"])
        await eventually_async(lambda: member.health.last_error == "ValueError: no such order")
        health = member.health
        assert health.running
        assert not health.paused
        assert made_ms <= health.since_ms <= now_ms()
        assert health.last_heartbeat_ms is not None
        assert health.brokers
        member.pause()
        assert member.health.paused
        member.resume()
        assert not member.health.paused
    assert (member.health.state, member.health.paused) == (ServiceState.SHUTDOWN_ALREADY, False)
    async with PopConsumer(unique("g"), name_server=name_server) as pop:
        pop.subscribe(unique("absent"))
        with pytest.raises(NoRoute) as refused:
            await pop.receive(wait_s=0.1)
        assert pop.health.last_error == str(refused.value)
    async with pull_consumer(name_server, topic, unique("g")) as pull:
        await eventually_async(pull.assignment)
        pull.pause(pull.assignment())
        assert pull.health.paused
        pull.resume(pull.assignment())
        assert not pull.health.paused


async def test_health_names_what_is_not_reached() -> None:
    absent = ClientOptions(name_server="127.0.0.1:1")
    producer = Producer(unique("p"), client=absent)
    async with producer:
        with pytest.raises(ClientError):
            await producer.send(Message("t", b"x"), timeout_s=1)
        health = producer.health
        assert health.down.keys() == {"127.0.0.1:1"}
        assert health.last_error is not None
        assert "127.0.0.1:1" in health.last_error


def test_health_and_events_of_blocking_objects(name_server: str, topics: Topics) -> None:
    """A plain listener runs in a thread, where it may use blocking objects; `health` is read by any thread."""
    topic, events, counts = topics(queues=4), [], []
    member = blocking.PushConsumer(unique("g"), name_server=name_server)
    member.subscribe(topic, lambda messages: None)

    @member.on_event
    def report(event: Event) -> None:
        events.append((threading.current_thread() is threading.main_thread(), event))
        counts.append(len(member.queues))

    with member:
        eventually(lambda: events)
        reading = [threading.Thread(target=lambda: [member.health for _ in range(2000)]) for _ in range(4)]
        for thread in reading:
            thread.start()
        for thread in reading:
            thread.join()
        assert len([queue for queue in member.health.queues if queue.topic == topic]) == 4
    eventually(lambda: isinstance(events[-1][1], QueuesRevoked))
    assert not any(is_main for is_main, _ in events)
    assert isinstance(events[0][1], QueuesAssigned)
    assert counts[0] >= 4
    with blocking.Producer(unique("p"), name_server=name_server) as producer:
        producer.send(Message(topic, b"x"))
        assert producer.health.running
        assert len(producer.health.brokers) == 1
    assert not producer.health.running


async def test_a_listener_that_hangs_or_fails_delays_no_other_part(
    name_server: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic, seen = topics(queues=1), Recorder()
    member = push_consumer(name_server, topic, unique("g"))
    done = threading.Event()

    @member.on_event
    def fails(event: Event) -> None:
        raise ValueError("my listener")

    member.on_event(seen)

    @member.on_event
    def hangs(event: Event) -> None:
        done.wait(60)

    async with asyncio.timeout(30):
        async with member:
            await eventually_async(lambda: seen.events)
            await eventually_async(lambda: member.health.queues)
        assert "a listener of events failed" in caplog.text
    done.set()


async def test_the_exit_of_a_listener_ends_only_its_call(
    name_server: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """`sys.exit` and a CancelledError of its own: the other listeners, and later events, are not kept waiting."""
    member, seen = push_consumer(name_server, topics(queues=1), unique("g")), Recorder()

    @member.on_event
    def leaves(event: Event) -> None:
        sys.exit(1)

    @member.on_event
    async def cancels(event: Event) -> None:
        raise asyncio.CancelledError

    member.on_event(seen)
    async with member:
        await eventually_async(lambda: seen.of(QueuesAssigned))
    assert seen.of(QueuesRevoked)
    assert "SystemExit" in caplog.text
    assert "CancelledError" in caplog.text


async def test_a_listener_may_close_the_consumer(name_server: str, topics: Topics) -> None:
    member = push_consumer(name_server, topics(queues=1), unique("g"))

    @member.on_event
    async def close(event: Event) -> None:
        await member.close()

    await member.start()
    async with asyncio.timeout(20):
        await eventually_async(lambda: member.state is ServiceState.SHUTDOWN_ALREADY)
        await member.close()
