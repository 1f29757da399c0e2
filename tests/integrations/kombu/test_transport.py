"""What kombu's own tests ask of a transport, and what RocketMQ adds, against FireArrow's broker and Apache's."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import kombu
import pytest
from kombu.exceptions import ChannelError
from kombu.simple import SimpleQueue
from kombu.transport.virtual import UndeliverableWarning

from firearrow.client import Message, NoRoute
from firearrow.client.blocking import Admin, Producer
from firearrow.client.integrations.kombu import dead_letter_topic, session, topic_of
from tests.client.proxy import Proxy
from tests.interop.peers import Peer
from tests.support.eventually import eventually

Connect = Callable[..., kombu.Connection]
ONCE = {"max_retries": 1, "interval_start": 0}


def dead_letters(site: Peer, queue: str) -> int:
    with Admin(site.name_server) as admin:
        try:
            stats = admin.topic_stats(dead_letter_topic(queue))
        except NoRoute:
            return 0
        return sum(one.max_offset - one.min_offset for one in stats.values())


def publish(connection: kombu.Connection, queue: kombu.Queue, *bodies: Any, **options: Any) -> None:
    producer = connection.Producer()
    for body in bodies:
        producer.publish(
            body,
            exchange=queue.exchange or "",
            routing_key=queue.routing_key or queue.name,
            declare=[queue],
            **options,
        )


def receive(connection: kombu.Connection, queue: kombu.Queue, count: int, within_s: float = 30) -> list[Any]:
    """`count` messages, acknowledged."""
    found: list[Any] = []

    def take(body: Any, message: Any) -> None:
        found.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[take]):
        deadline = time.monotonic() + within_s
        while len(found) < count:
            connection.drain_events(timeout=max(deadline - time.monotonic(), 0.01))
    return found


def get(channel: Any, queue: str, within_s: float = 30, **options: Any) -> Any:
    return eventually(lambda: channel.basic_get(queue, **options), within_s)


@pytest.mark.parametrize("body", ["text", "ümlaut ✓", {"a": [1, None, 2.5]}, b"\x00\xff bytes"])
def test_bodies_come_as_they_were_sent(connect: Connect, name: str, body: object) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, body, headers={"key": "value"}, correlation_id="id-1", reply_to="back")
    message = get(connection.default_channel, name)
    assert message.payload == body
    assert (message.headers, message.properties["correlation_id"]) == ({"key": "value"}, "id-1")
    assert message.properties["reply_to"] == "back"
    message.ack()


def test_compressed_and_pickled_bodies(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, "x" * 10_000, compression="zlib")
    assert get(connection.default_channel, name, no_ack=True).payload == "x" * 10_000
    publish(connection, queue, {1, 2}, serializer="pickle")
    pickled = get(connection.default_channel, name, no_ack=True)
    pickled.accept = {"application/x-python-serialize"}
    assert pickled.decode() == {1, 2}


@pytest.mark.parametrize(
    "odd", ["a.b.c", "user@host#1", "with space", "ü✓", "pipe|percent%", "TBW102", "rmq_sys_x"]
)
def test_odd_names_of_queues(connect: Connect, name: str, odd: str) -> None:
    connection, queue = connect(), kombu.Queue(f"{odd}-{name}" if odd != "TBW102" else odd)
    publish(connection, queue, "here")
    assert receive(connection, queue, 1) == ["here"]


def test_two_consumers_share_the_messages_of_a_queue(connect: Connect, name: str) -> None:
    first, second, queue = connect(), connect(), kombu.Queue(name)
    publish(first, queue, *range(100))
    found: list[int] = []

    def take(body: int, message: Any) -> None:
        found.append(body)
        message.ack()

    with (
        first.Consumer(queue, callbacks=[take], prefetch_count=3),
        second.Consumer(queue, callbacks=[take], prefetch_count=3),
    ):
        deadline = time.monotonic() + 30
        while len(found) < 100 and time.monotonic() < deadline:
            for connection in (first, second):
                try:
                    connection.drain_events(timeout=0.01)
                except TimeoutError:
                    continue
    assert sorted(found) == list(range(100))


def test_no_more_than_the_prefetch_count_is_taken(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, *range(10))
    taken: list[Any] = []
    with connection.Consumer(queue, on_message=taken.append, prefetch_count=3):
        while len(taken) < 3:
            connection.drain_events(timeout=30)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        # the others are there for everyone else
        other = connect().channel()
        rest = [get(other, name) for _ in range(7)]
        for message in taken[:1]:
            message.ack()
        assert len({message.payload for message in [*taken, *rest]}) == 10
        for message in [*taken[1:], *rest]:
            message.ack()


def test_what_a_cancelled_consumer_did_not_get_is_for_others(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, *range(5))
    taken: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: taken.append(message)]):
        connection.drain_events(timeout=20)
    taken[0].ack()
    rest = receive(connect(), queue, 4)
    assert sorted([taken[0].payload, *rest]) == list(range(5))


def test_a_rejected_message_comes_again_and_is_marked(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, "again")
    first = get(connection.default_channel, name)
    assert not first.delivery_info["redelivered"]
    first.requeue()
    second = get(connection.default_channel, name)
    assert (second.payload, second.delivery_info["redelivered"]) == ("again", True)
    second.ack()


def test_a_message_without_an_acknowledgement_comes_again_after_the_close(
    connect: Connect, name: str
) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, "kept")
    get(connection.default_channel, name)
    connection.release()
    assert receive(connect(), queue, 1) == ["kept"]


def test_rejects_and_too_many_deliveries_become_dead_letters(connect: Connect, name: str, site: Peer) -> None:
    connection, queue = connect(max_deliveries=2), kombu.Queue(name)
    publish(connection, queue, "rejected")
    get(connection.default_channel, name).reject()
    publish(connection, queue, "failing")
    for _ in range(2):
        get(connection.default_channel, name).requeue()

    def dead() -> bool:
        assert connection.default_channel.basic_get(name) is None
        return dead_letters(site, name) == 2

    eventually(dead, 30, lambda: dead_letters(site, name))


def test_what_is_no_message_of_kombu_becomes_a_dead_letter(connect: Connect, name: str, site: Peer) -> None:
    connection, queue = connect(), kombu.Queue(name)
    queue(connection.default_channel).declare()
    hostile = [
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b'{"body": "x", "headers": {}, "properties": {}}',
        b'{"body": "%%%", "content-type": 1, "content-encoding": null, "headers": {}, "properties": '
        b'{"delivery_tag": {}, "body_encoding": "nothing", "delivery_info": {}}}',
    ]
    with Producer("stranger", name_server=site.name_server) as producer:
        for body in hostile:
            producer.send(Message(topic_of(name), body))
    publish(connection, queue, "good")
    assert receive(connection, queue, 1) == ["good"]

    def dead() -> bool:
        assert connection.default_channel.basic_get(name) is None
        return dead_letters(site, name) == len(hostile)

    eventually(dead, 30, lambda: dead_letters(site, name))


def test_size_purge_and_delete(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    channel = connection.default_channel
    publish(connection, queue, *range(50))
    assert queue(channel).queue_declare(passive=True).message_count == 50
    assert queue(channel).purge() == 50
    eventually(lambda: queue(channel).queue_declare(passive=True).message_count == 0, 30)
    queue(channel).delete()
    with pytest.raises(ChannelError, match="no queue"):
        queue(channel).queue_declare(passive=True)
    again = connect()  # a connection remembers what it declared
    publish(again, queue, "new")
    assert receive(again, queue, 1) == ["new"]


def test_a_message_for_no_queue_is_reported(connect: Connect, name: str) -> None:
    with pytest.warns(UndeliverableWarning, match="declare the queue"):
        connect().Producer().publish("lost", routing_key=name)


def test_a_queue_with_the_longest_name_is_deleted(connect: Connect, name: str) -> None:
    """The names of its retry topics hold it twice, and so are longer than a user's topic may be."""
    connection, queue = connect(), kombu.Queue(name.ljust(120, "x"))
    publish(connection, queue, "again")
    get(connection.default_channel, queue.name).reject(requeue=True)
    get(connection.default_channel, queue.name).reject(requeue=True)
    queue(connection.default_channel).delete()
    publish(connect(), queue, "new")
    assert get(connection.default_channel, queue.name, no_ack=True).payload == "new"


def test_what_waits_longer_than_its_expiration_is_dropped(connect: Connect, name: str) -> None:
    connection = connect(queues=1)
    channel = connection.default_channel
    for queue in (kombu.Queue(name), kombu.Queue(f"{name}.temporary", auto_delete=True)):
        publish(connection, queue, "short", expiration=0.2)
        publish(connection, queue, "long", expiration=60)
        publish(connection, queue, "for ever")
        eventually(lambda queue=queue: queue(channel).queue_declare(passive=True).message_count == 3)
        time.sleep(0.4)
        assert receive(connection, queue, 2) == ["long", "for ever"]
        assert channel.basic_get(queue.name) is None


def test_a_temporary_queue_has_priorities(connect: Connect, name: str) -> None:
    connection = connect()
    queue = kombu.Queue(name, auto_delete=True, max_priority=9)
    for number, priority in enumerate((0, 5, 99, None, 5, -1)):
        publish(connection, queue, number, priority=priority)
    channel = connection.default_channel
    eventually(lambda: queue(channel).queue_declare(passive=True).message_count == 6)
    assert receive(connection, queue, 6) == [2, 1, 4, 0, 3, 5]


def test_a_fanout_reaches_every_queue_that_is_bound_to_it(connect: Connect, name: str) -> None:
    exchange = kombu.Exchange(name, type="fanout")
    queues = [kombu.Queue(f"{name}.{number}", exchange, exclusive=True) for number in range(3)]
    connections = [connect() for _ in queues]
    found: list[tuple[int, object]] = []
    consumers = [
        connection.Consumer(queue, callbacks=[lambda body, _, at=at: found.append((at, body))], no_ack=True)
        for at, (connection, queue) in enumerate(zip(connections, queues, strict=True))
    ]
    for consumer in consumers:
        consumer.consume()
    connect().Producer(exchange=exchange).publish("all")
    for connection in connections:
        connection.drain_events(timeout=20)
    assert sorted(found) == [(0, "all"), (1, "all"), (2, "all")]


def test_exchanges_route_by_key_and_by_pattern(connect: Connect, name: str) -> None:
    connection = connect()
    direct, topic = kombu.Exchange(f"{name}.direct"), kombu.Exchange(f"{name}.topic", type="topic")
    durable = kombu.Queue(f"{name}.durable", topic, routing_key="stock.#")
    reply = kombu.Queue(f"{name}.reply", direct, routing_key="mine", exclusive=True)
    events = kombu.Queue(f"{name}.events", topic, routing_key="stock.*.us", exclusive=True)
    for queue in (durable, reply, events):
        queue(connection.default_channel).declare()
    producer = connection.Producer()
    for key in ("stock.ibm.us", "stock.ibm.de", "bond.x.us"):
        producer.publish(key, exchange=topic, routing_key=key)
    for key in ("other", "mine"):
        producer.publish(key, exchange=direct, routing_key=key)
    assert sorted(receive(connection, durable, 2)) == ["stock.ibm.de", "stock.ibm.us"]
    assert receive(connection, events, 1) == ["stock.ibm.us"]
    assert receive(connection, reply, 1) == ["mine"]
    assert all(connection.default_channel.basic_get(queue.name) is None for queue in (durable, reply, events))


def test_a_reply_queue_keeps_what_comes_before_its_consumer(connect: Connect, name: str) -> None:
    """As results of Celery's rpc backend, which declares the queue by another connection."""
    asker, worker = connect(), connect()
    queue = kombu.Queue(name, kombu.Exchange(""), name, durable=False, auto_delete=True)
    queue(asker.default_channel).declare()
    worker.Producer().publish("early", exchange="", routing_key=name)
    asker.Producer().publish("late", exchange="", routing_key=name)
    assert receive(connect(), queue, 2) == ["early", "late"]


def test_simple_queue_and_buffer(connect: Connect, name: str) -> None:
    connection = connect()
    with SimpleQueue(connection, name) as queue:
        for number in range(5):
            queue.put({"number": number})
        assert queue.qsize() == 5
        found = []
        for _ in range(5):
            message = queue.get(block=True, timeout=20)
            found.append(message.payload["number"])
            message.ack()
        assert sorted(found) == list(range(5))
        with pytest.raises(queue.Empty):
            queue.get(block=False)
    with connection.SimpleBuffer(f"{name}.buffer") as buffer:
        buffer.put("x")
        assert buffer.get(block=True, timeout=20).payload == "x"


def test_the_highest_priority_comes_first(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name, max_priority=9)
    for priority in (0, 5, 9, 3, 7):
        publish(connection, queue, priority, priority=priority)
    publish(connection, queue, "default")
    found = [get(connection.default_channel, name, no_ack=True).payload for _ in range(6)]
    assert found[:4] == [9, 7, 5, 3]
    assert set(found[4:]) == {0, "default"}


def test_a_delayed_message_comes_when_it_is_due(connect: Connect, name: str) -> None:
    connection, queue = connect(), kombu.Queue(name)
    began = time.monotonic()
    publish(connection, queue, "later", headers={"x-delay": 1500})
    publish(connection, queue, "now")
    assert receive(connection, queue, 2) == ["now", "later"]
    assert time.monotonic() - began >= 1.4


def test_a_delay_longer_than_the_brokers_timers_takes_several(
    connect: Connect, name: str, site: Peer
) -> None:
    """With the same priority."""
    connection, queue = connect(delay_max=1), kombu.Queue(name, max_priority=9)
    began = time.monotonic()
    publish(connection, queue, "later", headers={"x-delay": 2500}, priority=7)
    assert receive(connection, queue, 1) == ["later"]
    assert time.monotonic() - began >= 2.4
    with Admin(site.name_server) as admin:
        stats = admin.topic_stats(topic_of(name))
    assert {queue.queue_id: one.max_offset for queue, one in stats.items() if one.max_offset} == {7: 3}


def test_a_slow_consumer_keeps_its_message(connect: Connect, name: str) -> None:
    """The time for which it is invisible is renewed, by the loop thread."""
    connection, queue = connect(visibility_timeout=2), kombu.Queue(name)
    publish(connection, queue, "slow")
    message = get(connection.default_channel, name)
    other = connect().channel()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        assert other.basic_get(name) is None
        time.sleep(0.1)
    message.ack()
    connection.release()


def test_ensure_and_the_errors_of_an_absent_broker(name: str) -> None:
    with (
        kombu.Connection("rocketmq://127.0.0.1:1", connect_timeout=1) as connection,
        pytest.raises(kombu.exceptions.OperationalError),
    ):
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)


def test_a_temporary_queue_without_consumer_is_deleted(
    connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LINGER_S", 0.2)
    connection, exchange = connect(), kombu.Exchange(name, type="fanout")
    queue = kombu.Queue(f"{name}.events", exchange, auto_delete=True)
    with connection.Consumer(queue, no_ack=True, callbacks=[lambda body, message: None]):
        pass
    channel = connection.default_channel
    eventually(lambda: channel.session.temporary(queue.name) is None)
    connection.Producer().publish("late", exchange=exchange)
    assert channel.state.exchanges[name]["table"] == []


def test_a_queue_that_another_process_deleted_is_created_again(
    connect: Connect, name: str, site: Peer
) -> None:
    connection, queue = connect(), kombu.Queue(name)
    publish(connection, queue, "first")
    with Admin(site.name_server) as admin:
        admin.delete_topic(topic_of(name))
    publish(connection, queue, "second")
    assert receive(connection, queue, 1) == ["second"]


async def test_messages_are_sent_while_the_name_server_is_away(
    site: Peer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, also on a new channel, which declares the queue, and to an exchange whose topic is looked up."""
    monkeypatch.setattr(session, "ABSENT_S", 0)
    queue = kombu.Queue(name, kombu.Exchange(f"{name}-orders", type="direct"), routing_key=name)

    def send(body: str) -> None:
        with connection.channel() as channel:
            kombu.Producer(channel).publish(
                body,
                exchange=queue.exchange,
                routing_key=name,
                declare=[queue],
                retry=True,
                retry_policy=ONCE,
            )

    async with Proxy(site.name_server) as names:
        connection = kombu.Connection(f"rocketmq://{names.address}")
        await asyncio.to_thread(send, "first")
        await names.shut()
        await asyncio.to_thread(send, "second")
        await names.open()
        found = await asyncio.to_thread(receive, connection, queue, 2)
        assert sorted(found) == ["first", "second"]
        assert await asyncio.to_thread(connection.default_channel.basic_get, name) is None
        await asyncio.to_thread(connection.release)
