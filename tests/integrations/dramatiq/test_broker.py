"""dramatiq's broker against FireArrow's and Apache's: what dramatiq's own tests ask of its brokers."""

import json
import math
import threading
import time
from dataclasses import replace

import pytest

pytest.importorskip("dramatiq")

import dramatiq
from dramatiq import Message, QueueJoinTimeout
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import AgeLimit, Retries, TimeLimit, TimeLimitExceeded

from firearrow.client import ClientOptions
from firearrow.client.base.errors import ConfigError, TransportError
from firearrow.client.base.message import Message as RocketMessage
from firearrow.client.blocking import Admin, Producer
from firearrow.client.integrations.dramatiq import RocketMQBroker, TaskOptions
from firearrow.client.integrations.topic_names import topic_of
from tests.integrations.dramatiq.conftest import QUICK, Make, working
from tests.interop.peers import Peer
from tests.support.eventually import eventually

JOIN_MS = 30_000


def test_actors_are_sent_messages(make: Make, every_site: Peer, name: str) -> None:
    broker, database = make(every_site), {}

    @dramatiq.actor(queue_name=name)
    def put(key: str, value: int) -> None:
        database[key] = value

    with working(broker) as worker:
        for number in range(100):
            assert put.send(f"key-{number}", number)
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert database == {f"key-{number}": number for number in range(100)}
    assert broker.get_declared_queues() == {name}
    assert broker.get_declared_delay_queues() == set()
    assert broker.get_queue_message_counts(name) == (0, 0, 0)


def test_failed_messages_are_tried_again_after_a_pause(broker: RocketMQBroker, name: str) -> None:
    ran: list[int] = []

    @dramatiq.actor(queue_name=name, min_backoff=1000, max_backoff=1000, max_retries=5)
    def fail_twice() -> None:
        ran.append(current_millis())
        if len(ran) < 3:
            raise RuntimeError("not yet")

    with working(broker) as worker:
        fail_twice.send()
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    first, second, third = ran
    assert min(second - first, third - second) >= 500
    assert broker.get_queue_message_counts(name) == (0, 0, 0)


def test_messages_that_fail_for_good_are_dead_letters(make: Make, every_site: Peer, name: str) -> None:
    """Also those of actors that do not exist, and those that cannot be decoded."""
    broker = make(every_site)

    @dramatiq.actor(queue_name=name, max_retries=0)
    def fail() -> None:
        raise RuntimeError("failed")

    fail.send()
    broker.enqueue(Message(queue_name=name, actor_name="missing", args=(), kwargs={}, options={}))
    with Producer("strangers", name_server=every_site.name_server) as producer:
        for body in (b"", b"\xff", b"{}", b"[" * 100_000):
            producer.send(RocketMessage(topic_of(name), body))
    with working(broker) as worker:
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert broker.get_queue_message_counts(name) == (0, 0, 6)


def test_delayed_messages_wait_at_the_broker(make: Make, every_site: Peer, name: str) -> None:
    broker, ran = make(every_site), {}

    @dramatiq.actor(queue_name=name)
    def note(what: str) -> None:
        ran[what] = current_millis()

    sent_ms = current_millis()
    with working(broker, worker_threads=1) as worker:
        late = note.send_with_options(args=("late",), delay=2500)
        note.send_with_options(args=("soon",), delay=1000)
        note.send_with_options(args=("eta",), eta=sent_ms + 1500)
        note.send_with_options(args=("past",), eta=1)
        eventually(lambda: broker.get_queue_message_counts(name)[1] >= 1)
        assert sum(consumer.delay_queue.qsize() for consumer in worker.consumers.values()) == 0
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert next(iter(ran)) == "past"
    assert ran["soon"] - sent_ms >= 1000
    assert ran["eta"] - sent_ms >= 1500
    assert ran["late"] - sent_ms >= 2500
    assert late.options["eta"] - sent_ms >= 2500
    assert late.queue_name == name


@pytest.mark.long
def test_a_message_may_take_longer_than_the_invisible_time(broker: RocketMQBroker, name: str) -> None:
    ran: list[int] = []

    @dramatiq.actor(queue_name=name)
    def slow(number: int) -> None:
        ran.append(number)
        time.sleep(5)

    with working(broker, worker_threads=2) as worker:
        for number in range(2):
            slow.send(number)
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert sorted(ran) == [0, 1]


def test_a_stopped_worker_returns_what_it_did_not_begin(make: Make, every_site: Peer, name: str) -> None:
    broker = make(every_site, replace(QUICK, invisible_s=60))
    ran: list[int] = []

    @dramatiq.actor(queue_name=name)
    def slow(number: int) -> None:
        time.sleep(0.3)
        ran.append(number)

    for number in range(10):
        slow.send(number)
    with working(broker, worker_threads=2):
        eventually(lambda: ran)
    assert 1 <= len(ran) <= 6
    with working(broker) as worker:
        eventually(lambda: len(ran) >= 10)
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert sorted(ran) == list(range(10))


def test_prefetch_limits_what_a_consumer_has(broker: RocketMQBroker, name: str) -> None:
    @dramatiq.actor(queue_name=name)
    def nothing() -> None: ...

    for _ in range(5):
        nothing.send()
    consumer = broker.consume(name, prefetch=2, timeout=300)
    first, second = (eventually(lambda: next(consumer)) for _ in range(2))
    assert next(consumer) is None
    consumer.ack(first)
    third = eventually(lambda: next(consumer))
    consumer.close()
    consumer.requeue([second])
    again = broker.consume(name, prefetch=10, timeout=300)
    found = [eventually(lambda: next(again)) for _ in range(3)]
    assert second.message_id in {message.message_id for message in found}
    assert not {first.message_id, third.message_id} & {message.message_id for message in found}


def test_messages_that_did_not_come_from_it_are_ignored(
    broker: RocketMQBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = broker.consume(name)
    strange = dramatiq.MessageProxy(Message(name, "actor", (), {}, {}))
    consumer.ack(strange)
    consumer.nack(strange)
    consumer.requeue([strange])
    assert "not received from RocketMQ" in caplog.text


def test_queues_are_flushed(broker: RocketMQBroker, name: str) -> None:
    ran: list[str] = []

    @dramatiq.actor(queue_name=name)
    def note(what: str) -> None:
        ran.append(what)

    for _ in range(50):
        note.send("flushed")
    broker.flush_all()
    assert broker.get_queue_message_counts(name) == (0, 0, 0)
    broker.join(name, timeout=JOIN_MS)
    with working(broker) as worker:
        note.send("kept")
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert ran == ["kept"]


def test_a_join_has_a_timeout(broker: RocketMQBroker, name: str) -> None:
    @dramatiq.actor(queue_name=name)
    def slow() -> None:
        time.sleep(2)

    with working(broker):
        slow.send()
        with pytest.raises(QueueJoinTimeout):
            broker.join(name, timeout=500)


def test_broker_priorities(make: Make, every_site: Peer, name: str) -> None:
    broker = make(every_site, TaskOptions(max_priority=5))

    @dramatiq.actor(queue_name=name)
    def note(what: int) -> None: ...

    for priority in (1, 5, 0, 3):
        note.send_with_options(args=(priority,), broker_priority=priority)
    consumer = broker.consume(name, prefetch=1, timeout=1000)
    order = []
    while len(order) < 4:
        if (message := next(consumer)) is not None:
            order.append(message.args[0])
            consumer.ack(message)
    assert order == [5, 3, 1, 0]
    with pytest.raises(ConfigError):
        note.send_with_options(args=(1,), broker_priority="high")


def test_actor_priorities_are_those_of_the_worker(broker: RocketMQBroker, name: str) -> None:
    ran: list[str] = []

    @dramatiq.actor(queue_name=name, priority=10)
    def low() -> None:
        ran.append("low")

    @dramatiq.actor(queue_name=name, priority=0)
    def high() -> None:
        ran.append("high")

    with working(broker, worker_threads=1) as worker:
        for thread in worker.workers:
            thread.pause()
        for thread in worker.workers:
            thread.paused_event.wait()
        low.send()
        high.send()
        eventually(lambda: worker.work_queue.qsize() == 2)
        for thread in worker.workers:
            thread.resume()
        broker.join(name, timeout=JOIN_MS)
    assert ran == ["high", "low"]


def test_limits_of_time_and_age(make: Make, site: Peer, name: str) -> None:
    broker = make(site, middleware=[AgeLimit(), TimeLimit(interval=50), Retries(max_retries=0)])
    ran: list[str] = []

    @dramatiq.actor(queue_name=name, time_limit=200)
    def endless() -> None:
        try:
            while True:
                time.sleep(0.01)
        except TimeLimitExceeded:
            ran.append("exceeded")
            raise

    @dramatiq.actor(queue_name=name, max_age=1000)
    def old() -> None:
        ran.append("old")

    endless.send()
    old.send_with_options(delay=1500)
    with working(broker) as worker:
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert ran == ["exceeded"]
    assert broker.get_queue_message_counts(name)[2] == 2


def test_a_shutdown_interrupts_actors_whose_messages_are_tried_again(
    broker: RocketMQBroker, name: str
) -> None:
    ran: list[str] = []

    @dramatiq.actor(queue_name=name, notify_shutdown=True, min_backoff=500, max_backoff=500)
    def interrupted() -> None:
        ran.append("started")
        if len(ran) == 1:
            for _ in range(1000):
                time.sleep(0.01)

    interrupted.send()
    with working(broker):
        eventually(lambda: ran)
    with working(broker) as worker:
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert ran == ["started", "started"]


def test_many_threads_share_a_broker(broker: RocketMQBroker, name: str) -> None:
    ran: list[int] = []

    @dramatiq.actor(queue_name=name)
    def note(number: int) -> None:
        ran.append(number)

    def send(first: int) -> None:
        for number in range(first, first + 20):
            note.send(number)

    threads = [threading.Thread(target=send, args=(20 * number,)) for number in range(10)]
    with working(broker) as worker:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert sorted(ran) == list(range(200))


def test_a_queue_whose_topic_was_deleted_is_created_again(
    broker: RocketMQBroker, name: str, site: Peer
) -> None:
    ran: list[int] = []

    @dramatiq.actor(queue_name=name)
    def note(number: int) -> None:
        ran.append(number)

    note.send(1)
    with Admin(name_server=site.name_server) as admin:
        admin.delete_topic(topic_of(name))
        note.send(2)
        with working(broker) as worker:
            broker.join(name, timeout=JOIN_MS)
            worker.join()
    assert 2 in ran


def test_connections_are_made_at_first_use() -> None:
    broker = RocketMQBroker("127.0.0.1:1", options=replace(QUICK, send_timeout_s=1))
    dramatiq.set_broker(broker)

    @dramatiq.actor
    def nothing() -> None: ...

    with pytest.raises(ConnectionClosed):
        nothing.send()
    with pytest.raises(ConnectionClosed):
        broker.consume("default")
    broker.close()


STRANGE = [
    {"message_id": 5, "options": {"eta": 1}},
    {"actor_name": ["note"]},
    {"options": None},
    {"kwargs": []},
    {"message_timestamp": "now"},
]


def test_messages_of_strangers_do_not_end_a_worker(broker: RocketMQBroker, name: str) -> None:
    """dramatiq's threads rely on the types of the fields, and know the queues of their broker only."""
    ran: list[str] = []

    @dramatiq.actor(queue_name=name)
    def note(what: str) -> None:
        ran.append(what)

    good = note.message("foreign").asdict()
    with Producer("strangers", name_server=broker._client.name_server) as producer:
        for fields in (*STRANGE, {"queue_name": "other"}, {"queue_name": 7}):
            producer.send(RocketMessage(topic_of(name), json.dumps(good | fields).encode()))
    with working(broker, worker_threads=1) as worker:
        note.send("own")
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert sorted(ran) == ["foreign", "foreign", "own"]
    assert broker.get_queue_message_counts(name) == (0, 0, len(STRANGE))


def test_a_message_whose_retry_is_refused_is_a_dead_letter(broker: RocketMQBroker, name: str) -> None:
    """The traceback, which a retry has, makes it too large."""

    @dramatiq.actor(queue_name=name, min_backoff=1)
    def fail(text: str) -> None:
        raise RuntimeError("failed")

    fail.send("x" * ((4 << 20) - 400))
    with working(broker) as worker:
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert broker.get_queue_message_counts(name) == (0, 0, 1)


def test_a_message_whose_retry_cannot_be_enqueued_comes_again(
    broker: RocketMQBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the broker did not answer for longer than `send_timeout_s`."""
    ran: list[int] = []

    @dramatiq.actor(queue_name=name, min_backoff=1)
    def fail_once() -> None:
        ran.append(1)
        if len(ran) == 1:
            monkeypatch.setattr(broker._session(), "send", unreachable)
            raise RuntimeError("failed")

    def unreachable(*_: object, **__: object) -> None:
        raise TransportError("no answer")

    fail_once.send()
    with working(broker) as worker:
        eventually(lambda: len(ran) == 2)
        broker.join(name, timeout=JOIN_MS)
        worker.join()
    assert broker.get_queue_message_counts(name) == (0, 0, 0)


@pytest.mark.parametrize("eta", [math.nan, math.inf, 1e20, 10**400])
def test_a_time_that_is_none_is_refused(broker: RocketMQBroker, name: str, eta: float) -> None:
    with pytest.raises(ConfigError):
        broker.enqueue(Message(name, "actor", (), {}, {"eta": eta}))


@pytest.mark.parametrize("odd", ["mail.high", "büro/äpfel 1", "%DLQ%x"])
def test_queues_may_have_any_name(broker: RocketMQBroker, name: str, odd: str) -> None:
    """dramatiq's actors allow few characters, its brokers any."""
    queue = f"{odd}{name}"
    broker.enqueue(Message(queue, "missing", (), {}, {}))
    with working(broker) as worker:
        broker.join(queue, timeout=JOIN_MS)
        worker.join()
    assert broker.get_queue_message_counts(queue) == (0, 0, 1)


def test_a_queue_without_a_name_and_without_a_topic(make: Make, site: Peer, name: str) -> None:
    broker = make(site, TaskOptions(create_topics=False), client=ClientOptions(name_server=site.name_server))
    with pytest.raises(ConfigError):
        broker.declare_queue("")
    with pytest.raises(ConnectionClosed, match=f"topic {name} does not exist: create it"):
        broker.enqueue(Message(name, "actor", (), {}, {}))
