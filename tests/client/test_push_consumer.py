"""The push consumer against a real broker: what handlers get, where it begins, its position, its memory."""

import asyncio
import threading
import tracemalloc
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import (
    MIB,
    ClientOptions,
    ConsumeFromWhere,
    MessageModel,
    PushConsumerOptions,
)
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.pushing import FIRST, Seen, Topics, again, consumer
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async


def offset_files(directory: Path) -> list[Path]:
    return list(directory.glob("*/*/offsets.json"))


# ---- what reaches handlers ----


async def test_everything_sent_reaches_the_handler_once(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(), Seen()
    bodies = feeder.spread(topic, 200)
    async with consumer(name_server, topic, seen):
        await eventually_async(lambda: len(seen.messages) >= 200)
        feeder.feed(topic, [b"later"])
        await eventually_async(lambda: len(seen.messages) >= 201)
    assert Counter(seen.bodies) == Counter([*bodies, b"later"])
    assert set(seen.batches) == {1}


async def test_a_decorated_handler_gets_the_tags_it_asked_for(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(), []
    feeder.feed(topic, [b"a"], tag="new")
    feeder.feed(topic, [b"b"], tag="old")
    feeder.feed(topic, [b"c"], tag="paid")
    orders = PushConsumer(
        unique("orders"), name_server=name_server, options=PushConsumerOptions(from_where=FIRST)
    )

    @orders.subscribe(topic, tags="new || paid")
    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        seen.extend((message.body, message.tags) for message in messages)
        if len(seen) == 2:
            orders.stop()
        return ConsumeResult.SUCCESS

    await orders.run()
    assert sorted(seen) == [(b"a", "new"), (b"c", "paid")]
    assert orders.state is ServiceState.SHUTDOWN_ALREADY


async def test_plain_functions_run_in_threads_side_by_side(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    together, names = threading.Barrier(3, timeout=10), set()

    def handle(messages: list[ReceivedMessage]) -> None:
        names.add(threading.current_thread().name)
        together.wait()

    feeder.feed(topic, [b"1", b"2", b"3"])
    async with consumer(name_server, topic, handle):
        await eventually_async(lambda: len(names) == 3)
    assert threading.main_thread().name not in names


async def test_batches_hold_at_most_what_was_asked_for(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    feeder.feed(topic, [b"%d" % n for n in range(30)])
    async with consumer(name_server, topic, seen, batch_size=8):
        await eventually_async(lambda: len(seen.messages) == 30)
    assert max(seen.batches) == 8


async def test_each_topic_has_its_handler(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    first, second = topics(), topics()
    to_first, to_second = Seen(), Seen()
    both = consumer(name_server, first, to_first)
    both.subscribe(second, to_second)
    feeder.feed(first, [b"1"])
    feeder.feed(second, [b"2"])
    async with both:
        await eventually_async(lambda: to_first.messages and to_second.messages)
    assert (to_first.bodies, to_second.bodies) == ([b"1"], [b"2"])
    assert [message.topic for message in to_second.messages] == [second]


async def test_messages_show_where_they_come_from(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(), Seen()
    offsets = feeder.feed(topic, [bytes(range(256)), b"x"], queue_id=2, KEYS="k1 k2", colour="red")
    async with consumer(name_server, topic, seen):
        await eventually_async(lambda: len(seen.messages) == 2)
    message = min(seen.messages, key=lambda message: message.queue_offset)
    assert message.body == bytes(range(256))
    assert (message.topic, message.queue_id, message.queue_offset) == (topic, 2, offsets[0])
    assert message.queue == MessageQueue(topic, message.broker_name, 2)
    assert message.keys == ("k1", "k2")
    assert message.properties["colour"] == "red"
    assert int(message.properties["MAX_OFFSET"]) >= 1


async def test_a_failed_message_is_redelivered_under_its_own_topic(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(), []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
        seen.append((messages[0].topic, messages[0].reconsume_times, messages[0].body))
        if messages[0].reconsume_times == 0:
            raise ValueError("once more")
        return ConsumeResult.SUCCESS

    async with consumer(name_server, topic, handle):
        feeder.feed(topic, [b"again"])
        await eventually_async(lambda: len(seen) == 2, 30)
    assert seen == [(topic, 0, b"again"), (topic, 1, b"again")]


@pytest.mark.parametrize("sql", ["colour = 'red' AND size > 3"])
async def test_sql_chooses_by_properties(
    name_server: str, topics: Topics, feeder: RawProducer, sql: str
) -> None:
    topic, seen = topics(), Seen()
    chosen = PushConsumer(
        unique("group"), name_server=name_server, options=PushConsumerOptions(from_where=FIRST)
    )
    chosen.subscribe(topic, seen, sql=sql)
    feeder.feed(topic, [b"no"], colour="red", size="3")
    feeder.feed(topic, [b"yes"], colour="red", size="4")
    feeder.feed(topic, [b"no"], colour="blue", size="4")
    async with chosen:
        await eventually_async(lambda: seen.messages)
    assert seen.bodies == [b"yes"]


async def test_filter_hooks_leave_messages_out_and_offsets_go_on(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()

    class OnlyEven:
        def filter(
            self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
        ) -> list[ReceivedMessage]:
            return [message for message in messages if int(message.body) % 2 == 0]

    made = PushConsumer(
        unique("group"),
        name_server=name_server,
        options=PushConsumerOptions(from_where=FIRST),
        filter_hooks=[OnlyEven()],
    )
    made.subscribe(topic, seen)
    feeder.feed(topic, [b"%d" % n for n in range(10)])
    async with made:
        await eventually_async(lambda: len(seen.messages) == 5)
    assert sorted(seen.bodies) == [b"0", b"2", b"4", b"6", b"8"]


# ---- where it begins, and its position ----


async def test_a_group_goes_on_where_it_stopped(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, before, after = topics(queues=1), Seen(), Seen()
    first = consumer(name_server, topic, before)
    feeder.feed(topic, [b"1", b"2"])
    async with first:
        await eventually_async(lambda: len(before.messages) == 2)
    feeder.feed(topic, [b"3"])
    second = again(first, name_server, topic, after)
    async with second:
        await eventually_async(lambda: after.messages)
    assert after.bodies == [b"3"]


async def test_a_timestamp_is_where_a_new_group_begins(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    feeder.feed(topic, [b"1", b"2"])
    later = datetime.now() + timedelta(hours=1)
    late = consumer(name_server, topic, seen, from_where=ConsumeFromWhere.TIMESTAMP, from_time=later)
    early = consumer(
        name_server,
        topic,
        seen,
        from_where=ConsumeFromWhere.TIMESTAMP,
        from_time=datetime.now() - timedelta(hours=1),
    )
    async with early:
        await eventually_async(lambda: len(seen.messages) == 2)
    async with late:
        await eventually_async(lambda: late.queues)
        feeder.feed(topic, [b"3"])
        await eventually_async(lambda: len(seen.messages) >= 3)
    assert seen.bodies[2:] == [b"3"]


async def test_broadcasting_members_get_everything_and_keep_their_offsets_in_files(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    topic, group = topics(queues=2), unique("group")
    seen = [Seen(), Seen(), Seen()]
    feeder.spread(topic, 10, queues=2)

    def member(number: int, handler: Seen) -> PushConsumer:
        made = PushConsumer(
            group,
            client=ClientOptions(name_server=name_server, instance_name=f"member{number}"),
            options=PushConsumerOptions(
                from_where=FIRST, model=MessageModel.BROADCASTING, local_offsets=tmp_path
            ),
        )
        made.subscribe(topic, handler)
        return made

    async with member(0, seen[0]), member(1, seen[1]):
        await eventually_async(lambda: len(seen[0].messages) == len(seen[1].messages) == 10)
    assert {path.parts[-3].partition("@")[2] for path in offset_files(tmp_path)} == {"member0", "member1"}
    feeder.feed(topic, [b"new"])
    async with member(0, seen[2]):
        await eventually_async(lambda: seen[2].messages)
    assert seen[2].bodies == [b"new"]


async def test_an_offset_the_broker_does_not_have_is_repaired(
    name_server: str, peer: Peer, topics: Topics, feeder: RawProducer, caplog: pytest.LogCaptureFixture
) -> None:
    topic, before, after = topics(queues=1), Seen(), Seen()
    feeder.feed(topic, [b"1", b"2", b"3"])
    first = consumer(name_server, topic, before)
    async with first:
        await eventually_async(lambda: len(before.messages) == 3)
    with ClientSocket(address(peer.address)) as connection:
        ext = {"consumerGroup": first.group, "topic": topic, "queueId": "0", "commitOffset": "1000"}
        assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
    second = again(first, name_server, topic, after)
    async with second:
        await eventually_async(lambda: "has no offset 1000, pulling continues at 3" in caplog.text)
        feeder.feed(topic, [b"4"])
        await eventually_async(lambda: after.messages)
    assert after.bodies == [b"4"]


# ---- members ----


async def test_members_split_the_queues_and_take_over_when_one_leaves(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, group, seen = topics(queues=4), unique("group"), Seen()

    def member() -> PushConsumer:
        made = PushConsumer(group, name_server=name_server, options=PushConsumerOptions(from_where=FIRST))
        made.subscribe(topic, seen)
        return made

    def mine(one: PushConsumer) -> int:
        return sum(queue.topic == topic for queue in one.queues)

    first, second = member(), member()
    async with first:
        await eventually_async(lambda: mine(first) == 4)
        async with second:
            await eventually_async(lambda: mine(first) == mine(second) == 2, 20)
            assert not first.queues & {queue for queue in second.queues if queue.topic == topic}
            feeder.spread(topic, 40)
            await eventually_async(lambda: len(set(seen.bodies)) == 40)
        await eventually_async(lambda: mine(first) == 4, 20)
    assert len(seen.messages) == 40


async def test_a_queue_listener_is_notified_of_changes(name_server: str, topics: Topics) -> None:
    topic, calls = topics(queues=3), []
    made = PushConsumer(
        unique("group"),
        name_server=name_server,
        queue_listener=lambda topic, everything, mine: calls.append((topic, len(everything), len(mine))),
    )
    made.subscribe(topic, Seen())
    async with made:
        await eventually_async(lambda: (topic, 3, 3) in calls)


# ---- memory ----


async def test_many_messages_stay_within_small_thresholds(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """64 MiB are consumed; what is in memory at a time is known and small, and so is the memory that it takes."""
    topic, body, handled, most = topics(queues=2), bytes(32768), 0, 0
    for queue_id in range(2):
        feeder.feed(topic, [body] * 1000, queue_id=queue_id)

    async def handle(messages: list[ReceivedMessage]) -> None:
        nonlocal most, handled
        assert made._runtime is not None
        most = max(most, *(held.message_count for held in made._runtime.table.values()))
        handled += len(messages)
        await asyncio.sleep(0)

    made = consumer(name_server, topic, handle, queue_messages_max=10, pull_batch=8, threads=2)
    tracemalloc.start()
    try:
        async with made:
            await eventually_async(lambda: handled == 2000, 60)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 10 < most <= 10 + 8
    assert peak < 8 * MIB
