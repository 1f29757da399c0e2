"""The blocking façade: the calls of the asynchronous objects from any thread, and where it must refuse."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from firearrow import client as asynchronous
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import blocking
from firearrow.client.base.errors import ConfigError, MessageRefused, NoRoute, NotRunning
from firearrow.client.base.message import Message, SendStatus
from firearrow.client.base.options import (
    ConsumeFromWhere,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.send.transactions import TransactionState
from firearrow.client.threads.loop_thread import LoopThread
from tests.client.conftest import unique

Topics = Callable[..., str]
FIRST = ConsumeFromWhere.FIRST_OFFSET
ROOT = Path(__file__).resolve().parents[2]


def producer(name_server: str, **options: object) -> blocking.Producer:
    return blocking.Producer(
        unique("group"),
        name_server=name_server,
        options=ProducerOptions(**options),  # type: ignore[arg-type]
    )


def pull(name_server: str, topic: str, group: str | None = None) -> blocking.PullConsumer:
    made = blocking.PullConsumer(
        group or unique("group"), name_server=name_server, options=PullConsumerOptions(from_where=FIRST)
    )
    made.subscribe(topic)
    return made


# ---- it is complete ----


@pytest.mark.parametrize(
    "name", ["Producer", "PushConsumer", "PullConsumer", "PopConsumer", "Admin", "Extensions"]
)
def test_each_verb_has_its_twin_with_the_same_arguments(name: str) -> None:
    """`start` returns the object itself, dunder methods are of other kinds."""
    inner, facade = getattr(asynchronous, name), getattr(blocking, name)
    not_for_users = {
        "topics",
        "heartbeat_data",
        "rebalance",
        "persist_offsets",
        "end_transaction_hooks",
        "not_given",
        "settle",
        "report_unsent",
        "instance",
    }
    if name in ("Admin", "Extensions"):
        not_for_users = {"report_unsent"}
    verbs = {
        verb: method
        for verb, method in inspect.getmembers(inner)
        if not verb.startswith("_") and verb not in not_for_users and inspect.isfunction(method)
    }
    assert verbs
    for verb, method in verbs.items():
        twin = inspect.unwrap(vars(facade).get(verb, getattr(facade, verb)))
        wanted = [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]
        found = [(one.name, one.kind, one.default) for one in inspect.signature(twin).parameters.values()]
        assert found == wanted, verb
    made = [
        (one.name, one.kind, one.default) for one in inspect.signature(inner.__init__).parameters.values()
    ]
    assert [
        (one.name, one.kind, one.default) for one in inspect.signature(facade.__init__).parameters.values()
    ] == made


# ---- verbs ----


def test_sending_and_pulling(name_server: str, topics: Topics) -> None:
    topic = topics()
    with producer(name_server) as sending, pull(name_server, topic) as pulling:
        result = sending.send(Message(topic, b"sent"))
        assert result.status is SendStatus.SEND_OK
        sending.send_batch([Message(topic, b"batch 1"), Message(topic, b"batch 2")])
        sending.send_oneway(Message(topic, b"oneway"))
        found: list[bytes] = []
        for message in pulling:
            found.append(message.body)
            if len(found) == 4:
                break
        assert sorted(found) == [b"batch 1", b"batch 2", b"oneway", b"sent"]
        pulling.commit()
        queues = pulling.assignment()
        assert sum(pulling.committed(queue) or 0 for queue in queues) == 4
        assert sum(pulling.position(queue) or 0 for queue in queues) == 4


def test_errors_are_those_of_the_asynchronous_objects(name_server: str) -> None:
    with pytest.raises(ConfigError):
        blocking.Producer("not a name", name_server=name_server)
    sending = producer(name_server)
    with pytest.raises(NotRunning):
        sending.send(Message("T", b""))
    with sending:
        with pytest.raises(MessageRefused):
            sending.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(NoRoute), blocking.Admin(name_server) as admin:
            admin.queues(unique("nothing"))
    sending.close()
    with pytest.raises(NotRunning):
        sending.start()


def test_futures_of_submitted_messages(name_server: str, topics: Topics) -> None:
    topic = topics()
    with producer(name_server, in_flight_max=50) as sending:
        futures = [sending.submit(Message(topic, b"%d" % number)) for number in range(500)]
        assert {future.result(30).status for future in futures} == {SendStatus.SEND_OK}
        refused = sending.submit(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        assert isinstance(refused.exception(10), MessageRefused)
    assert isinstance(sending.submit(Message(topic, b"late")).exception(10), NotRunning)


def test_many_threads_share_one_producer(name_server: str, topics: Topics) -> None:
    topic = topics()
    with producer(name_server) as sending, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: sending.send(Message(topic, b"%d" % number)), range(200)))
    assert len({result.message_id for result in results}) == 200


def test_a_push_consumer_with_plain_handlers_that_send_themselves(name_server: str, topics: Topics) -> None:
    """Handlers run in threads, so they may use blocking objects."""
    first, second = topics(), topics()
    done = threading.Event()
    options = PushConsumerOptions(from_where=FIRST)
    consumer = blocking.PushConsumer(unique("group"), name_server=name_server, options=options)
    with producer(name_server) as sending:

        @consumer.subscribe(first)
        def pass_on(messages: list[ReceivedMessage]) -> ConsumeResult:
            for message in messages:
                sending.send(Message(second, message.body))
            return ConsumeResult.SUCCESS

        consumer.subscribe(second, lambda messages: done.set())
        with consumer:
            sending.send(Message(first, b"body"))
            assert done.wait(20)
            assert {queue.topic for queue in consumer.queues} >= {first, second}
            consumer.pause()
            assert consumer.paused
            consumer.resume()
    with pytest.raises(NotRunning):
        consumer.pause()


def test_popping(name_server: str, topics: Topics) -> None:
    topic = topics()
    popping = blocking.PopConsumer(
        unique("group"), name_server=name_server, options=PopConsumerOptions(from_where=FIRST, wait_s=5)
    )
    popping.subscribe(topic)
    with producer(name_server) as sending, popping:
        sending.send(Message(topic, b"1"))
        sending.send(Message(topic, b"2"))
        found = []
        for message in popping:
            popping.change_invisible(message, 30)
            popping.ack(message)
            found.append(message.body)
            if len(found) == 2:
                break
        assert sorted(found) == [b"1", b"2"]
        assert popping.receive(wait_s=0) == []
        assert not popping.wait(0)
        sending.send(Message(topic, b"3"))
        assert popping.wait(20)
        popping.dead_letter(*popping.receive())


def test_closing_from_another_thread_ends_an_iteration(name_server: str, topics: Topics) -> None:
    popping = blocking.PopConsumer(unique("group"), name_server=name_server)
    popping.subscribe(topics())
    pulling = pull(name_server, topics())
    for consumer in (popping, pulling):
        consumer.start()
        timer = threading.Timer(0.3, consumer.close)
        timer.start()
        assert list(consumer) == []
        timer.join()


def test_transactions(name_server: str, topics: Topics) -> None:
    topic = topics(message_type="TRANSACTION")
    sending = blocking.Producer(
        unique("group"), name_server=name_server, checker=lambda message: TransactionState.UNKNOWN
    )
    with sending, pull(name_server, topic) as pulling:
        with sending.transaction(Message(topic, b"committed")) as transaction:
            assert transaction.id == transaction.sent.message_id
        assert transaction.state is TransactionState.COMMIT
        with pytest.raises(ValueError, match="broken"), sending.transaction(Message(topic, b"rolled back")):
            raise ValueError("broken")
        threads: list[threading.Thread] = []

        def work(message: Message, argument: object) -> TransactionState:
            threads.append(threading.current_thread())
            return TransactionState.COMMIT

        result = sending.send_in_transaction(Message(topic, b"by a function"), work)
        assert result.state is TransactionState.COMMIT
        assert threads[0] is not LoopThread.current()._thread
        found = [next(iter(pulling)).body for _ in range(2)]
        assert sorted(found) == [b"by a function", b"committed"]


GREENLETS = """
import gevent.monkey

gevent.monkey.patch_all()
import asyncio
import os

import gevent

from firearrow.client import ConsumeFromWhere, Message, PopConsumerOptions, ProducerOptions, PushConsumerOptions
from firearrow.client.blocking import PopConsumer, Producer, PushConsumer

turns = 0


def turn():
    global turns
    while True:
        gevent.sleep(0.01)
        turns += 1


topic = os.environ["TOPIC"]
with Producer("greenlets") as producer:  # no other greenlet runs yet
    turning = gevent.spawn(turn)
    senders = [gevent.spawn(producer.send, Message(topic, b"%d" % number)) for number in range(100)]
    assert len({sender.get(timeout=60).message_id for sender in senders}) == 100
options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
with PopConsumer("greenlets", options=options) as consumer:
    consumer.subscribe(topic)
    found = []
    while len(found) < 100:
        messages = consumer.receive(32, wait_s=30)
        consumer.ack_batch(messages)
        found += messages
    turns = 0
    assert consumer.receive(wait_s=1) == []
push = PushConsumer("handled", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET))
with Producer("few", options=ProducerOptions(in_flight_max=10)) as few:
    events, handled = [], []
    push.on_event(events.append)

    @push.subscribe(topic)
    def handler(messages):
        gevent.sleep(0.001)
        few.send(Message(os.environ["OTHER"], b"from a handler"))
        handled.extend(messages)

    for future in [few.submit(Message(topic, b"%d" % number)) for number in range(200)]:
        future.result(60)
    with push, gevent.Timeout(60):
        while len(handled) < 300 or not events:
            gevent.sleep(0.01)
try:
    with gevent.Timeout(0.1):
        push._thread.run(lambda: asyncio.sleep(60))
except gevent.Timeout:
    print("turns", turns)
"""


def test_greenlets_go_on_while_one_waits(name_server: str, topics: Topics) -> None:
    """gevent makes greenlets of threads: the client's loop, handlers and listeners keep threads of the system."""
    pytest.importorskip("gevent")
    environment = os.environ | {"NAMESRV_ADDR": name_server, "TOPIC": topics(), "OTHER": topics()}
    done = subprocess.run(
        [sys.executable, "-c", GREENLETS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[1]) > 5
    assert done.stderr == ""


# ---- where it waits, and where it must not ----


async def test_within_another_loop_it_only_blocks(name_server: str, topics: Topics) -> None:
    topic = topics()
    with producer(name_server) as sending:
        assert sending.send(Message(topic, b"body")).status is SendStatus.SEND_OK
        future = sending.submit(Message(topic, b"body"))
        assert (await asyncio.wrap_future(future)).status is SendStatus.SEND_OK


def test_in_its_own_loop_it_refuses_to_wait_for_itself(name_server: str, topics: Topics) -> None:
    topic = topics()
    caught: Future[BaseException] = Future()
    consumer = blocking.PushConsumer(
        unique("group"), name_server=name_server, options=PushConsumerOptions(from_where=FIRST)
    )
    with producer(name_server) as sending:

        @consumer.subscribe(topic)
        async def handler(messages: list[ReceivedMessage]) -> None:
            consumer.pause()  # waits for nothing, so it is allowed
            try:
                sending.send(Message(topic, b"again"))
            except NotRunning as error:
                caught.set_result(error)

        with consumer:
            sending.send(Message(topic, b"body"))
            assert "would wait for itself" in str(caught.result(20))
