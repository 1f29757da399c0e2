"""Offsets of a group at the brokers and in memory, and where a queue is begun."""

import asyncio
import time
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, OffsetUnknown, RequestTimeout
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere
from firearrow.client.rebalance.offset_store import NOT_FOUND, OffsetTable, ReadOffset
from firearrow.client.rebalance.remote_offset_store import RemoteOffsetStore
from firearrow.client.rebalance.start_offset import start_offset
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.client.rounds import FakeInstance, Member, queues_of
from tests.support.eventually import eventually_async

FIRST, SECOND = queues_of("T", 2)
RETRIED = MessageQueue("%RETRY%group", "broker-a", 0)


# ---- memory ----


def test_increase_only_never_goes_back() -> None:
    table = OffsetTable()
    table.update(FIRST, 5, increase_only=True)
    table.update(FIRST, 4, increase_only=True)
    assert table.cached_offset(FIRST) == 5
    table.update(FIRST, 4)
    assert table.cached_offset(FIRST) == 4


def test_a_frozen_offset_stays_until_it_is_removed() -> None:
    table = OffsetTable()
    table.update(FIRST, 9)
    table.update_and_freeze(FIRST, 3)
    table.update(FIRST, 10, increase_only=True)
    table.update(FIRST, 10)
    assert table.cached_offset(FIRST) == 3
    table.update_and_freeze(FIRST, 4)
    assert table.cached_offset(FIRST) == 4
    table.remove(FIRST)
    table.update(FIRST, 10)
    assert table.cached_offset(FIRST) == 10


def test_a_snapshot_is_a_copy_of_one_topic_or_of_all() -> None:
    table = OffsetTable()
    table.update(FIRST, 1)
    table.update(RETRIED, 2)
    copy = table.snapshot()
    copy.clear()
    assert table.snapshot() == table.snapshot("") == {FIRST: 1, RETRIED: 2}
    assert table.snapshot("T") == {FIRST: 1}


# ---- the remote store's rules ----


async def test_each_way_to_read_goes_where_it_says() -> None:
    instance = FakeInstance(
        {RequestCode.QUERY_CONSUMER_OFFSET: lambda request: request.answer(ext={"offset": "7"})}
    )
    store = RemoteOffsetStore(instance, "group")
    assert await store.read(FIRST, ReadOffset.MEMORY) == NOT_FOUND
    assert not instance.asked
    assert await store.read(FIRST, ReadOffset.MEMORY_FIRST) == 7
    store.update(FIRST, 9)
    assert await store.read(FIRST, ReadOffset.MEMORY_FIRST) == 9
    assert len(instance.asked) == 1
    assert await store.read(FIRST, ReadOffset.STORE) == store.cached_offset(FIRST) == 7, (
        "going back is allowed"
    )
    assert instance.asked[-1].ext == {
        "consumerGroup": "group",
        "topic": "T",
        "queueId": "0",
        "bname": "broker-a",
        "setZeroIfNotFound": "false",
    }


async def test_not_found_is_not_the_same_as_not_known() -> None:
    instance = FakeInstance(
        {RequestCode.QUERY_CONSUMER_OFFSET: lambda request: request.answer(ResponseCode.QUERY_NOT_FOUND)}
    )
    store = RemoteOffsetStore(instance, "group")
    assert await store.read(FIRST, ReadOffset.STORE) == NOT_FOUND
    assert store.snapshot() == {}, "nothing found is not remembered"


@pytest.mark.parametrize(
    "failure",
    [
        lambda request: request.answer(ResponseCode.SYSTEM_ERROR, "busy"),
        lambda request: request.answer(ext={}),
        lambda request: request.answer(ext={"offset": "far"}),
        RequestTimeout("too late"),
    ],
)
async def test_a_failed_question_is_no_answer(
    failure: Callable[[RemotingCommand], RemotingCommand] | Exception,
) -> None:
    store = RemoteOffsetStore(FakeInstance({RequestCode.QUERY_CONSUMER_OFFSET: failure}), "group")
    with pytest.raises(OffsetUnknown, match="the offset could not be read"):
        await store.read(FIRST, ReadOffset.STORE)


async def test_a_broker_that_is_not_known_is_looked_for_once() -> None:
    instance = FakeInstance(
        {RequestCode.QUERY_CONSUMER_OFFSET: lambda request: request.answer(ext={"offset": "7"})}
    )
    brokers, instance.routes.brokers = instance.routes.brokers, {}
    store = RemoteOffsetStore(instance, "group")
    with pytest.raises(OffsetUnknown, match="broker broker-a is not known"):
        await store.read(FIRST, ReadOffset.STORE)
    assert instance.routes.refreshed == ["T"]
    instance.routes.found_later = brokers
    assert await store.read(FIRST, ReadOffset.STORE) == 7


async def test_offsets_go_to_a_slave_when_there_is_no_master_and_are_read_there_after_a_refresh() -> None:
    instance = FakeInstance(
        {RequestCode.QUERY_CONSUMER_OFFSET: lambda request: request.answer(ext={"offset": "7"})}
    )
    instance.routes.brokers = {"broker-a": {1: "slave:1"}}
    store = RemoteOffsetStore(instance, "group")
    store.update(FIRST, 5)
    await store.persist(FIRST)
    assert instance.routes.refreshed == [], "a slave will do for writing"
    assert await store.read(FIRST, ReadOffset.STORE) == 7
    assert instance.routes.refreshed == ["T"], "for reading, the master is looked for first"
    assert instance.addresses == ["slave:1", "slave:1"]


async def test_persist_all_writes_the_given_queues_and_forgets_the_others() -> None:
    instance = FakeInstance({})
    store = RemoteOffsetStore(instance, "group")
    store.update(FIRST, 5)
    store.update(SECOND, 6)
    await store.persist_all([])
    assert store.snapshot() == {FIRST: 5, SECOND: 6}
    assert instance.asked == []
    for _ in range(2):
        await store.persist_all([FIRST, RETRIED])
    assert store.snapshot() == {FIRST: 5}
    assert [(request.code, request.is_oneway) for request in instance.asked] == [(15, True)] * 2, (
        "also when unchanged"
    )
    assert instance.asked[0].ext == {
        "consumerGroup": "group",
        "topic": "T",
        "queueId": "0",
        "bname": "broker-a",
        "commitOffset": "5",
    }


async def test_an_offset_that_moves_meanwhile_is_written_as_it_is_by_then() -> None:
    instance = FakeInstance({})
    store, queues = RemoteOffsetStore(instance, "group"), queues_of("T", 250)
    for queue in queues:
        store.update(queue, 9)
    task = asyncio.create_task(store.persist_all(queues))
    await asyncio.sleep(0)
    written = {int(request.ext["queueId"]) for request in instance.asked}
    assert 0 < len(written) < 250, "others have their turn between"
    for queue in queues:
        store.update(queue, 3)
    store.remove(queues[0])
    await task
    committed = {int(request.ext["queueId"]): request.ext["commitOffset"] for request in instance.asked}
    assert {number for number, offset in committed.items() if offset == "9"} == written
    assert {number for number, offset in committed.items() if offset == "3"} == set(range(250)) - written - (
        {0} - written
    )


async def test_a_failed_write_is_logged_and_the_others_are_written(caplog: pytest.LogCaptureFixture) -> None:
    instance = FakeInstance({})
    store = RemoteOffsetStore(instance, "group")
    lost = MessageQueue("T", "broker-x", 0)
    store.update(lost, 5)
    store.update(FIRST, 6)
    await store.persist_all([lost, FIRST])
    assert [request.ext["commitOffset"] for request in instance.asked] == ["6"]
    assert "broker broker-x is not known" in caplog.text


async def test_the_last_time_the_brokers_answers_are_awaited(caplog: pytest.LogCaptureFixture) -> None:
    instance = FakeInstance({RequestCode.UPDATE_CONSUMER_OFFSET: lambda asked: asked.answer()})
    store = RemoteOffsetStore(instance, "group")
    lost = MessageQueue("T", "broker-x", 0)
    store.update(lost, 5)
    store.update(FIRST, 6)
    await store.persist_final([lost, FIRST, SECOND])
    assert [(request.ext["commitOffset"], request.is_oneway) for request in instance.asked] == [("6", False)]
    assert "broker broker-x is not known" in caplog.text


# ---- where a queue is begun ----


class At:
    """A scripted store and broker."""

    def __init__(self, stored: int | Exception) -> None:
        self._stored = stored
        self.how: ReadOffset | None = None
        self.updated = NOT_FOUND

    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        self.how = how
        if isinstance(self._stored, Exception):
            raise self._stored
        return self._stored

    async def max_offset(self, queue: MessageQueue) -> int:
        return 100

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        return time_ms

    async def offset_since(self, queue: MessageQueue, time_ms: int) -> int:
        return time_ms

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        self.updated = offset


LAST, FROM_FIRST, TIME = (
    ConsumeFromWhere.LAST_OFFSET,
    ConsumeFromWhere.FIRST_OFFSET,
    ConsumeFromWhere.TIMESTAMP,
)


@pytest.mark.parametrize(
    ("where", "queue", "stored", "begins"),
    [
        (LAST, FIRST, 7, 7), (FROM_FIRST, FIRST, 7, 7), (TIME, FIRST, 7, 7),
        (LAST, FIRST, 0, 0), (FROM_FIRST, FIRST, 0, 0), (TIME, FIRST, 0, 0),
        (LAST, FIRST, NOT_FOUND, 100), (FROM_FIRST, FIRST, NOT_FOUND, 0), (TIME, FIRST, NOT_FOUND, 55),
        (LAST, RETRIED, NOT_FOUND, 0), (FROM_FIRST, RETRIED, NOT_FOUND, 0), (TIME, RETRIED, NOT_FOUND, 100),
    ],
)  # fmt: skip
async def test_a_queue_begins_at_what_is_stored_else_where_the_group_wants(
    where: ConsumeFromWhere, queue: MessageQueue, stored: int, begins: int
) -> None:
    at = At(stored)
    assert await start_offset(at, at, where, 55)(queue) == begins
    assert at.how is ReadOffset.STORE
    chosen = stored == NOT_FOUND and where is not FROM_FIRST
    assert at.updated == (begins if chosen else NOT_FOUND), "the next owner starts at the same offset"


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
async def test_a_queue_is_not_begun_without_a_start_offset(where: ConsumeFromWhere) -> None:
    at = At(OffsetUnknown("no broker"))
    with pytest.raises(OffsetUnknown, match="no broker"):
        await start_offset(at, at, where, 55)(FIRST)


async def test_an_offset_below_zero_is_none() -> None:
    at = At(NOT_FOUND)
    with pytest.raises(OffsetUnknown, match="-2 is not a valid start offset"):
        await start_offset(at, at, TIME, -2)(FIRST)


# ---- a real broker ----


async def test_a_broker_keeps_what_is_committed(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=2), unique("group")
    member = Member(await ClientInstance.of(ClientOptions(name_server=name_server)), group, [topic])
    await member.join()
    first, second = await member.instance.routes.subscribe_queues(topic)
    await member.offsets.commit(first, 0)
    other = RemoteOffsetStore(member.instance, group)
    assert await other.read(first, ReadOffset.STORE) == 0
    member.offsets.update(first, 3)
    member.offsets.update(second, 4)
    await member.offsets.persist_all([first, second])

    async with asyncio.timeout(10):  # Apache's broker may answer what follows a one-way request first
        while [await other.read(queue, ReadOffset.STORE) for queue in (first, second)] != [3, 4]:
            pass
    await member.offsets.commit(first, 1)
    assert await other.read(first, ReadOffset.STORE) == 1, "a broker goes back on request"
    with pytest.raises(BrokerError):
        await member.offsets.commit(MessageQueue(unique("nowhere"), first.broker_name, 0), 1)
    with pytest.raises(ClientError):
        await member.offsets.commit(MessageQueue(topic, "nobody", 0), 1)
    await member.leave()


async def test_positions_of_queues_are_returned(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic = topics(queues=1)
    instance = await ClientInstance.of(ClientOptions(name_server=name_server))
    (queue,) = await instance.routes.subscribe_queues(topic)
    positions, before_ms = QueueOffsets(instance), int(time.time() * 1000)
    assert (await positions.min_offset(queue), await positions.max_offset(queue)) == (0, 0)
    feeder.feed(topic, [b"a", b"b", b"c"])
    async with asyncio.timeout(10):  # Apache's queues follow its log a moment later
        while (end := await positions.max_offset(queue)) < 3:
            pass
    assert (await positions.min_offset(queue), end) == (0, 3)
    assert await positions.offset_at(queue, before_ms - 60_000) == 0
    assert await positions.offset_at(queue, before_ms + 60_000) == 3
    assert before_ms <= await positions.earliest_ms(queue) <= before_ms + 60_000
    with pytest.raises(ClientError):
        await positions.max_offset(MessageQueue(topic, "nobody", 0))
    await instance.leave()


async def test_no_offset_is_no_offset_in_a_young_topic_too(
    name_server: str, topics: Callable[..., str], feeder: RawProducer
) -> None:
    topic, group = topics(queues=1), unique("group")
    feeder.feed(topic, [b"a", b"b"])
    member = Member(await ClientInstance.of(ClientOptions(name_server=name_server)), group, [topic])
    await member.join()
    await eventually_async(lambda: member.begun)
    assert member.begun[0].next_offset == 2
    await member.leave()
