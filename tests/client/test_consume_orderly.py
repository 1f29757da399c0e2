"""In order, and broadcasting, end to end, against a real broker."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.consume.consume_results import Answer, ConsumeResult, Suspend
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.local_broker import LocalBroker
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.remoting.client_instance import ClientInstance
from tests.client.conftest import unique
from tests.client.consumers import Journal, Topics, consumer, dead_letters, numbers
from tests.client.proxy import Detour
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

# ---- in order ----


@pytest.mark.parametrize("answer", [False, Suspend(0.05), RuntimeError("no")])
async def test_order_is_kept_under_failure_while_other_queues_go_on(
    answer: Answer | Exception, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen, failed = topics(queues=2), dict[int, list[bytes]]({0: [], 1: []}), list[bytes]()

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        message = messages[0]
        if message.queue_id == 0 and message.body in (b"003", b"007") and failed.count(message.body) < 2:
            failed.append(message.body)
            assert message.reconsume_times == failed.count(message.body) - 1
            if isinstance(answer, Exception):
                raise answer
            return answer
        seen[message.queue_id].append(message.body)
        return None

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(10), queue_id=queue_id)
    consuming = consumer(name_server, orderly=True, suspend_s=0.05)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: len(seen[0]) == len(seen[1]) == 10, 20)
    assert seen == {0: numbers(10), 1: numbers(10)}
    assert failed == [b"003", b"003", b"007", b"007"]


async def test_in_order_plain_handlers_never_meet_in_one_queue(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen, running = topics(queues=2), list[tuple[int, bytes]](), Counter[int]()
    together: list[int] = []

    def handler(messages: list[ReceivedMessage]) -> None:
        queue_id = messages[0].queue_id
        running[queue_id] += 1
        together.append(running[queue_id])
        seen.extend((queue_id, message.body) for message in messages)
        running[queue_id] -= 1

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(50), queue_id=queue_id)
    consuming = consumer(name_server, orderly=True, batch_size=4)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: len(seen) == 100, 20)
    assert set(together) == {1}
    assert [body for queue_id, body in seen if queue_id == 0] == numbers(50)


async def test_in_order_too_many_failures_end_as_a_dead_letter_and_the_queue_goes_on(
    peer: Peer, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    journal = Journal(lambda message: message.body != b"001")
    feeder.feed(topic, numbers(3))
    consuming = consumer(name_server, orderly=True, suspend_s=0.05, max_reconsume_times=2)
    consuming.subscribe(topic, journal)
    async with consuming:
        await eventually_async(lambda: b"002" in journal.bodies, 20)
        await eventually_async(lambda: dead_letters(peer, consuming.group), 20)
    assert journal.bodies == [b"000", b"001", b"001", b"001", b"002"]
    (letter,) = dead_letters(peer, consuming.group)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"001", topic)


async def test_without_auto_commit_only_what_was_committed_stays_done(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    first = Journal(lambda message: ConsumeResult.COMMIT if message.body == b"002" else None)
    feeder.feed(topic, numbers(6))
    consuming = consumer(name_server, orderly=True, auto_commit=False)
    consuming.subscribe(topic, first)
    async with consuming:
        await eventually_async(lambda: len(first.seen) == 6)
    second = Journal()
    successor = consumer(name_server, consuming.group, orderly=True)
    successor.subscribe(topic, second)
    async with successor:
        await eventually_async(lambda: len(second.seen) == 3, 20)
    assert second.bodies == numbers(6)[3:]


async def test_the_next_member_goes_on_in_order_where_the_last_one_stopped(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    """No pause of a lock's 60 s, nothing twice, nothing missing."""
    topic, seen = topics(queues=2), dict[int, list[bytes]]({0: [], 1: []})

    async def handler(messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0.005)
        seen[messages[0].queue_id] += [message.body for message in messages]

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(60), queue_id=queue_id)
    group = unique("group")
    for stop_at in (20, 60, 120):
        consuming = consumer(name_server, group, orderly=True)
        consuming.subscribe(topic, handler)
        async with consuming:
            await eventually_async(lambda: len(seen[0]) + len(seen[1]) >= stop_at, 20)  # noqa: B023
    assert seen == {0: numbers(60), 1: numbers(60)}


# ---- broadcasting ----


async def test_broadcasting_brings_everything_to_all_members_and_does_not_retry(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    topic, group = topics(), unique("group")
    feeder.spread(topic, 20)
    journals = [Journal(lambda message: message.body != b"7"), Journal()]
    members = []
    for number, journal in enumerate(journals):
        member = PushConsumer(
            group,
            options=PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                model=MessageModel.BROADCASTING,
                local_offsets=tmp_path,
            ),
            client=ClientOptions(name_server=name_server, instance_name=f"member{number}"),
        )
        member.subscribe(topic, journal)
        members.append(member)
    async with members[0], members[1]:
        await eventually_async(lambda: all(len(journal.seen) >= 20 for journal in journals), 20)
    assert [Counter(journal.bodies) for journal in journals] == [Counter(b"%d" % n for n in range(20))] * 2


async def test_broadcasting_goes_on_where_its_file_says(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    topic, group, seen = topics(), unique("group"), list[bytes]()
    for bodies in (numbers(5), [b"new"]):
        feeder.feed(topic, bodies)
        journal = Journal()
        member = PushConsumer(
            group,
            options=PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                model=MessageModel.BROADCASTING,
                local_offsets=tmp_path,
            ),
            client=ClientOptions(name_server=name_server, instance_name="steady"),
        )
        member.subscribe(topic, journal)
        async with member:
            await eventually_async(lambda: len(journal.seen) >= len(bodies), 20)  # noqa: B023
        seen += journal.bodies
    assert seen == [*numbers(5), b"new"]


# ---- a broker that was away ----


async def test_nothing_more_is_handled_until_a_broker_that_was_away_has_locked_the_queue_again(
    peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    """It may have given the queue to another member."""
    topic, bodies = topics(queues=1), list[bytes]()

    async def handler(messages: list[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)
        await asyncio.sleep(0.05)

    feeder.feed(topic, numbers(40))
    async with Detour(peer) as detour:
        consuming = consumer(detour.name_server, unique("group"), orderly=True)
        consuming.subscribe(topic, handler)
        async with consuming:
            await eventually_async(lambda: len(bodies) >= 3)
            await detour.broker.shut()
            await asyncio.sleep(0.1)
            done = len(bodies)
            await asyncio.sleep(0.5)
            assert len(bodies) == done < 40
            await detour.broker.open()
            await eventually_async(lambda: len(bodies) >= 40, 20)
    assert bodies == numbers(40)


async def test_a_broker_knows_after_a_restart_who_has_which_queue(tmp_path: Path) -> None:
    """The first member that is back, of whatever client, gets no queue of another one that still works."""
    with LocalBroker(tmp_path / "store") as broker:
        instances = [await ClientInstance.of(ClientOptions(name_server=broker.name_server)) for _ in range(2)]
        await instances[0].routes.refresh("TBW102")
        await instances[1].routes.refresh("TBW102")
        [queue, *_] = await instances[0].routes.subscribe_queues("TBW102")
        first, second = (QueueLocks(instance, "group", {}) for instance in instances)
        assert await first.lock(queue)
        broker.stop()
        await asyncio.to_thread(broker.start)
        assert not await second.lock(queue)
        assert await first.lock(queue)
        await first.unlock_queues([queue])
        async with asyncio.timeout(10):
            while not await second.lock(queue):
                pass
        for instance in instances:
            await instance.leave()
