"""Traces at a real broker: found in the trace topic by the id and the keys of the traced message."""

import asyncio
from collections.abc import Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    ConsumeFromWhere,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from firearrow.client.send.recall import RecallHandle
from firearrow.client.send.transactions import TransactionState
from firearrow.client.trace.records import (
    EndTransactionRecord,
    MessageKind,
    PubRecord,
    RecallRecord,
    ReturnType,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
    decode,
    searchable,
)
from tests.client.conftest import unique

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACED = ProducerOptions(trace=True, trace_batch=1)


async def records_of(admin: Admin, key: str, kinds: set[type]) -> list[TraceRecord]:
    """The records of a message once those of these kinds are there: brokers index a moment later."""
    async with asyncio.timeout(20):
        while True:
            traces = await admin.messages_by_key(TRACE_TOPIC, key)
            records = [record for trace in traces for record in decode(trace.body.decode())]
            found = [record for record in records if key in searchable(record)]
            if kinds <= {type(record) for record in found}:
                return found
            await asyncio.sleep(0.02)


async def test_a_send_is_found_in_the_trace_topic(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(), unique("traced")
    async with Admin(name_server) as admin:
        async with Producer(group, name_server=name_server, options=TRACED) as producer:
            sent = await producer.send(Message(topic, b"body", tags="tag", keys=["k1", "k2"]))
        (record,) = await records_of(admin, sent.message_id, {PubRecord})
        assert isinstance(record, PubRecord)
        assert (record.group, record.topic, record.tags, record.keys) == (group, topic, "tag", "k1 k2")
        assert (record.body_bytes, record.kind, record.success) == (4, MessageKind.NORMAL, True)
        assert record.offset_message_id == sent.offset_message_id
        assert record.region == sent.region


async def test_every_way_of_sending_is_traced(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=1)
    async with Admin(name_server) as admin:
        async with Producer(unique("traced"), name_server=name_server, options=TRACED) as producer:
            submitted = await producer.submit(Message(topic, b"submitted"))
            batch = [Message(topic, b"%d" % number, keys=[f"key-{number}"]) for number in range(3)]
            together = await producer.send_batch(batch)
            large = await producer.send(Message(topic, b"a" * 10000))
        (alone,) = await records_of(admin, submitted.message_id, {PubRecord})
        assert isinstance(alone, PubRecord)
        assert alone.success
        for message_id in together.message_id.split(","):
            (record,) = await records_of(admin, message_id, {PubRecord})
            assert record.message_id == together.message_id
        (packed,) = await records_of(admin, large.message_id, {PubRecord})
        assert isinstance(packed, PubRecord)
        assert packed.body_bytes < 10000, "the size after compression"


async def test_a_transaction_is_traced_with_its_end(name_server: str, topics: Callable[..., str]) -> None:
    topic = topics(queues=1, message_type="TRANSACTION")

    def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.ROLLBACK

    async with (
        Admin(name_server) as admin,
        Producer(unique("traced"), name_server=name_server, options=TRACED, checker=check) as producer,
    ):
        async with producer.transaction(Message(topic, b"x")) as kept:
            pass
        async with producer.transaction(Message(topic, b"y")) as asked:
            asked.leave_unknown()
        end, half = sorted(
            await records_of(admin, kept.id, {PubRecord, EndTransactionRecord}), key=_type_name
        )
        assert isinstance(half, PubRecord)
        assert half.kind is MessageKind.HALF
        assert isinstance(end, EndTransactionRecord)
        assert (end.state, end.from_check, end.topic) == ("COMMIT_MESSAGE", False, topic)
        async with asyncio.timeout(20):
            while not any(map(_answered, await records_of(admin, asked.id, {EndTransactionRecord}))):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_recall_is_traced(name_server: str, topics: Callable[..., str]) -> None:
    topic, group = topics(queues=1, message_type="DELAY"), unique("traced")
    async with (
        Admin(name_server) as admin,
        Producer(group, name_server=name_server, options=TRACED) as producer,
    ):
        sent = await producer.send(Message(topic, b"x", delay_s=60))
        assert sent.recall_handle is not None
        assert RecallHandle.decode(sent.recall_handle).message_id == sent.message_id
        assert await producer.recall(topic, sent.recall_handle) == sent.message_id
        delayed, recalled = sorted(
            await records_of(admin, sent.message_id, {PubRecord, RecallRecord}), key=_type_name
        )
        assert isinstance(recalled, RecallRecord)
        assert (recalled.group, recalled.topic, recalled.success) == (group, topic, True)
        assert isinstance(delayed, PubRecord)
        assert delayed.kind is MessageKind.DELAY


async def test_what_a_consumer_does_is_found_in_the_trace_topic(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=1), unique("traced")
    consumer = PushConsumer(
        group,
        name_server=name_server,
        options=PushConsumerOptions(trace=True, trace_batch=1, from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    handled = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        handled.set()

    consumer.subscribe(topic, handle)
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        async with consumer:
            sent = await producer.send(Message(topic, b"body", keys=["k"]))
            await asyncio.wait_for(handled.wait(), 20)
        ended, begun = sorted(
            await records_of(admin, sent.message_id, {SubBeforeRecord, SubAfterRecord}), key=_type_name
        )
        assert isinstance(begun, SubBeforeRecord)
        assert (begun.group, begun.retries, begun.keys, begun.region) == (group, 0, "k", sent.region)
        assert isinstance(ended, SubAfterRecord)
        assert (ended.request_id, ended.success, ended.returned) == (
            begun.request_id,
            True,
            ReturnType.SUCCESS,
        )
        assert ended.group == group


async def test_what_a_consumer_polls_is_found_in_the_trace_topic(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic, group = topics(queues=1), unique("traced")
    options = PullConsumerOptions(trace=True, trace_batch=1, from_where=ConsumeFromWhere.FIRST_OFFSET)
    async with Admin(name_server) as admin, Producer(unique("p"), name_server=name_server) as producer:
        sent = await producer.send(Message(topic, b"body"))
        consumer = PullConsumer(group, name_server=name_server, options=options)
        consumer.subscribe(topic)
        async with consumer, asyncio.timeout(20):
            while not await consumer.poll():
                pass
        ended, begun = sorted(
            await records_of(admin, sent.message_id, {SubBeforeRecord, SubAfterRecord}), key=_type_name
        )
        assert isinstance(begun, SubBeforeRecord)
        assert isinstance(ended, SubAfterRecord)
        assert (begun.group, ended.request_id, ended.success) == (group, begun.request_id, True)


async def test_a_producer_that_is_not_traced_leaves_no_trace(
    name_server: str, topics: Callable[..., str]
) -> None:
    topic = topics(queues=1)
    async with Admin(name_server) as admin:
        async with Producer(unique("untraced"), name_server=name_server) as producer:
            untraced = await producer.send(Message(topic, b"x"))
        async with Producer(unique("traced"), name_server=name_server, options=TRACED) as producer:
            traced = await producer.send(Message(topic, b"y"))
        await records_of(admin, traced.message_id, {PubRecord})
        assert await admin.messages_by_key(TRACE_TOPIC, untraced.message_id) == []


def _answered(record: TraceRecord) -> bool:
    return (
        isinstance(record, EndTransactionRecord) and record.from_check and record.state == "ROLLBACK_MESSAGE"
    )


def _type_name(record: TraceRecord) -> str:
    return type(record).__name__
