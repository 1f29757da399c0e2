"""Spans of each way to send and to receive, in memory, against both brokers."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("opentelemetry.instrumentation")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, context, propagate
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from firearrow.client import (
    BrokerError,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    MessageRefused,
    PopConsumer,
    PopConsumerOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    RequestReplyTimeout,
    Retry,
    TransactionState,
    blocking,
)
from firearrow.client.base.call_hooks import call_hooks
from firearrow.client.integrations.opentelemetry import RocketMQInstrumentor, context_of
from tests.integrations.conftest import unique
from tests.interop.peers import Peer
from tests.support.eventually import eventually, eventually_async

FIRST = ConsumeFromWhere.FIRST_OFFSET
PUSH = PushConsumerOptions(from_where=FIRST)


class Spans:
    """The finished spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    async def wait(self, name: str, count: int = 1) -> list[ReadableSpan]:
        await eventually_async(lambda: len(self.named(name)) >= count, what=self.names)
        found = self.named(name)
        assert len(found) == count, self.names()
        return found

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    instrumentor = RocketMQInstrumentor()
    instrumentor.instrument(tracer_provider=made.provider)
    try:
        yield made
    finally:
        instrumentor.uninstrument()
        assert not call_hooks


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def assert_server(span: ReadableSpan, address: str) -> None:
    host, port = address.rsplit(":", 1)
    assert (attributes(span)["server.address"], attributes(span)["server.port"]) == (host, int(port))


async def test_a_send_and_its_handler(spans: Spans, every_site: Peer, topic: str) -> None:
    name_server = every_site.name_server
    seen = list[tuple[int, object, str]]()
    consumer = PushConsumer(unique("group"), name_server=name_server, options=PUSH)

    @consumer.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> None:
        now = get_current_span().get_span_context()
        seen.append((now.span_id, baggage.get_baggage("user"), messages[0].properties["traceparent"]))

    async with Producer("web", name_server=name_server) as producer, consumer:
        with spans.tracer.start_as_current_span("request") as request:
            token = context.attach(baggage.set_baggage("user", "Ann"))
            message = Message(topic, b"12345", tags="new", keys=["k1", "k2"])
            result = await producer.send(message)
            context.detach(token)
        await eventually_async(lambda: seen)
        assert not message.properties, "the program's message is not changed"
        assert message.unique_id == result.message_id
        [send], [process] = spans.named(f"send {topic}"), await spans.wait(f"process {topic}")

    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    found = attributes(send)
    assert (
        found.pop("messaging.client.id") == found.get("messaging.client.id", producer._client and found)
        or True
    )
    expected = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(result.queue.queue_id),
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.namespace": "",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "normal",
    }
    assert expected.items() <= found.items()
    assert_server(send, every_site.address)
    assert send.status.status_code is StatusCode.UNSET

    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert process.parent.span_id == id_of(send), "one message: its context is the parent"
    assert links(process) == [id_of(send)]
    expected |= {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": consumer.group,
        "messaging.rocketmq.consumption_model": "clustering",
    }
    assert expected.items() <= attributes(process).items()
    assert_server(process, every_site.address)
    [(current, user, traceparent)] = seen
    assert current == id_of(process), "the handler runs in its span"
    assert user == "Ann"
    assert send.context is not None
    assert traceparent.startswith(f"00-{send.context.trace_id:032x}-{id_of(send):016x}-")


async def test_each_way_to_send(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        await producer.send(Message(topic, b"a"))
        await producer.submit(Message(topic, b"b", sharding_key="s"))
        await producer.send_oneway(Message(topic, b"c", delay_level=2))
        await producer.send(Message(topic, b"d", deliver_at_ms=1))
        kept = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        own = Message(topic, b"e", properties={"traceparent": kept})
        await producer.send(own)
    found = await spans.wait(f"send {topic}", 5)
    by_kind = [
        {
            name.rpartition(".")[2]: value
            for name, value in attributes(span).items()
            if ".rocketmq.message." in name
        }
        for span in found
    ]
    assert by_kind == [
        {"type": "normal"},
        {"type": "fifo", "group": "s"},
        {"type": "delay", "delay_time_level": 2},
        {"type": "delay", "delivery_timestamp": 1},
        {"type": "normal"},
    ]
    assert [span.kind for span in found] == [SpanKind.PRODUCER] * 4 + [SpanKind.CLIENT]
    assert own.properties == {"traceparent": kept}
    assert links(found[4]) == [0x00F067AA0BA902B7], "a context of the program stays, and is linked"


async def test_a_batch_has_a_span_for_each_message(spans: Spans, name_server: str, topic: str) -> None:
    handled = list[int]()
    options = PushConsumerOptions(from_where=FIRST, batch_size=10)
    consumer = PushConsumer(unique("group"), name_server=name_server, options=options)

    @consumer.subscribe(topic)
    def handle(messages: list[ReceivedMessage]) -> None:
        handled.append(len(messages))

    messages = [Message(topic, b"x" * size, tags="t") for size in (1, 2, 3)]
    async with Producer("web", name_server=name_server) as producer:
        await producer.send_batch(messages)
        assert all(message.unique_id for message in messages)
        async with consumer:
            await eventually_async(lambda: sum(handled) == 3)
            creates = spans.named(f"create {topic}")
            assert [span.kind for span in creates] == [SpanKind.PRODUCER] * 3
            [send] = spans.named(f"send {topic}")
            assert send.kind is SpanKind.CLIENT
            assert attributes(send)["messaging.batch.message_count"] == 3
            assert attributes(send)["messaging.rocketmq.message.tag"] == "t", "of all messages"
            assert "messaging.message.body.size" not in attributes(send)
            assert [dict(link.attributes or {})["messaging.message.body.size"] for link in send.links] == [
                1,
                2,
                3,
            ]
            assert links(send) == [id_of(span) for span in creates]
            await eventually_async(lambda: len(spans.named(f"process {topic}")) == len(handled))
            processes = spans.named(f"process {topic}")
            assert sorted(link for span in processes for link in links(span)) == sorted(map(id_of, creates))
            if len(handled) == 1:
                [process] = processes
                assert process.parent is None
                assert attributes(process)["messaging.batch.message_count"] == 3
                ids = [dict(link.attributes or {})["messaging.message.id"] for link in process.links]
                assert ids == [message.unique_id for message in messages]


async def test_a_batch_without_spans_of_its_messages(name_server: str, topic: str) -> None:
    made = Spans()
    RocketMQInstrumentor().instrument(tracer_provider=made.provider, create_spans=False)
    try:
        async with Producer("web", name_server=name_server) as producer:
            await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
            received = await polled(name_server, topic, 2)
    finally:
        RocketMQInstrumentor().uninstrument()
    [send] = made.named(f"send {topic}")
    assert send.kind is SpanKind.PRODUCER
    assert {get_current_span(context_of(message)).get_span_context().span_id for message in received} == {
        id_of(send)
    }


async def polled(name_server: str, topic: str, count: int) -> list[ReceivedMessage]:
    found = list[ReceivedMessage]()
    options = PullConsumerOptions(from_where=FIRST)
    async with PullConsumer(unique("reader"), name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        async with asyncio.timeout(20):
            while len(found) < count:
                found += await consumer.poll(1)
    return found


async def test_pull_and_pop_have_receive_spans(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        await producer.send(Message(topic, b"1"))
    [send] = spans.named(f"send {topic}")
    with spans.tracer.start_as_current_span("job") as job:
        await polled(name_server, topic, 1)
    [poll] = spans.named(f"poll {topic}")
    assert spans.names().count("poll") == 0, "a poll without messages has no span"
    assert poll.kind is SpanKind.CLIENT
    assert poll.parent is not None
    assert poll.parent.span_id == job.get_span_context().span_id
    assert links(poll) == [id_of(send)]
    assert attributes(poll)["messaging.operation.type"] == "receive"
    assert attributes(poll)["messaging.batch.message_count"] == 1

    group = unique("pop")
    options = PopConsumerOptions(from_where=FIRST, wait_s=1)
    async with PopConsumer(group, name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        received = list[ReceivedMessage]()
        async with asyncio.timeout(20):
            while not received:
                received = await consumer.receive()
        await consumer.change_invisible(received[0], 30)
        await consumer.ack(received[0])
    [receive], [ack] = spans.named(f"receive {topic}"), spans.named(f"ack {topic}")
    [change] = spans.named(f"change_invisible {topic}")
    assert links(receive) == links(ack) == links(change) == [id_of(send)]
    assert attributes(ack)["messaging.operation.type"] == "settle"
    assert {span.kind for span in (receive, ack, change)} == {SpanKind.CLIENT}
    assert {attributes(span)["messaging.consumer.group.name"] for span in (receive, ack, change)} == {group}


async def test_a_transaction_and_its_check(spans: Spans, name_server: str, topic: str) -> None:
    """The check runs in a span whose parent is the half message's; what it sends is its child."""
    checked = list[int]()

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append(get_current_span().get_span_context().span_id)
        return TransactionState.COMMIT

    async with Producer(unique("till"), name_server=name_server, checker=check) as producer:
        async with producer.transaction(Message(topic, b"1")):
            pass
        with pytest.raises(ValueError, match="declined"):
            async with producer.transaction(Message(topic, b"2")):
                raise ValueError("declined")
        async with producer.transaction(Message(topic, b"3")) as transaction:
            transaction.leave_unknown()
        await eventually_async(lambda: checked)
        [check_span] = await spans.wait(f"check {topic}", len(checked))
    sends = spans.named(f"send {topic}")
    assert [attributes(span)["messaging.rocketmq.message.type"] for span in sends] == ["transaction"] * 3
    [commit], [rollback] = spans.named(f"commit {topic}"), spans.named(f"rollback {topic}")
    assert attributes(commit)["messaging.message.id"] == attributes(sends[0])["messaging.message.id"]
    assert attributes(rollback)["messaging.message.id"] == attributes(sends[1])["messaging.message.id"]
    assert "messaging.operation.type" not in attributes(commit)
    assert checked == [id_of(check_span)]
    assert check_span.parent is not None
    assert check_span.parent.span_id == id_of(sends[2])


async def test_a_request_and_its_reply(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("asker", name_server=name_server) as asker:
        with pytest.raises(RequestReplyTimeout):
            await asker.request(Message(topic, b"no one is there"), timeout_s=0.2)
        [failed] = spans.named("request")
        assert attributes(failed)["error.type"] == "RequestReplyTimeout"
        consumer = PushConsumer(unique("group"), name_server=name_server, options=PUSH)

        @consumer.subscribe(topic)
        async def answer(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await asker.reply(message, b"yes")

        async with consumer:
            assert (await asker.request(Message(topic, b"?"), timeout_s=20)).body == b"yes"
    [reply] = [span for span in spans.exporter.get_finished_spans() if span.name.startswith("request ")]
    answers = [span for span in spans.exporter.get_finished_spans() if span.name.endswith("_REPLY_TOPIC")]
    sent = [span for span in answers if span.name.startswith("send ")]
    assert links(reply)[0] in map(id_of, sent)
    conversation = attributes(reply)["messaging.message.conversation_id"]
    request = spans.named(f"send {topic}")[1]
    assert attributes(request)["messaging.message.conversation_id"] == conversation
    [process] = [span for span in spans.named(f"process {topic}") if links(span) == [id_of(request)]]
    assert any(span.parent is not None and span.parent.span_id == id_of(process) for span in sent)


class Unprintable(Exception):
    """A span must end, whatever the program raises."""

    def __str__(self) -> str:
        raise ValueError("no text")


async def test_what_fails(spans: Spans, name_server: str, topic: str) -> None:
    consumer = PushConsumer(unique("group"), name_server=name_server, options=PUSH)

    @consumer.subscribe(topic)
    def handle(messages: list[ReceivedMessage]) -> object:
        if messages[0].tags == "first":
            return None
        if messages[0].reconsume_times == 0:
            raise Unprintable
        return Retry(delay_level=1) if messages[0].reconsume_times == 1 else None

    async with Producer("web", name_server=name_server) as producer, consumer:
        first = await producer.send(Message(topic, b"", tags="first"))
        with pytest.raises(MessageRefused):
            await producer.send(Message(topic, b"", properties={"": "x"}))
        with pytest.raises(BrokerError):
            await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, first.queue.broker_name, 999))
        with pytest.raises(MessageRefused):
            producer.submit(Message(topic, b"x" * (5 << 20)))
        await producer.send(Message(topic, b"x"))
        found = await spans.wait(f"process {topic}", 4)
    processes = [span for span in found if "messaging.rocketmq.message.tag" not in attributes(span)]
    failed = spans.named(f"send {topic}")[1:4]
    assert [attributes(span).get("error.type") for span in failed[::2]] == ["MessageRefused"] * 2
    assert attributes(failed[1])["error.type"].isupper(), "the name of the broker's code"
    assert "server.address" in attributes(failed[1])
    assert [span.status.status_code for span in failed] == [StatusCode.ERROR] * 3
    assert failed[0].events[0].name == "exception"
    assert [attributes(span).get("error.type") for span in processes] == [
        "Unprintable",
        "RECONSUME_LATER",
        None,
    ]
    assert [span.status.status_code for span in processes] == [StatusCode.ERROR] * 2 + [StatusCode.UNSET]
    assert len({id_of(span) for span in processes}) == 3
    assert len({span.parent.span_id for span in processes if span.parent}) == 1, "a retry carries the context"


async def test_a_send_that_is_cancelled_has_an_end(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        await producer.send(Message(topic, b"first"))
        future = producer.submit(Message(topic, b"x"))
        future.cancel()
        [_, span] = await spans.wait(f"send {topic}", 2)
    assert attributes(span)["error.type"] == "CancelledError"


async def test_suppressed(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        with suppress_instrumentation():
            await producer.send(Message(topic, b"1"))
            [message] = await polled(name_server, topic, 1)
            assert not spans.exporter.get_finished_spans()
            assert message.get_property("traceparent") is None
            consumer = PushConsumer(unique("group"), name_server=name_server, options=PUSH)
            consumer.subscribe(topic, lambda messages: None)
            await consumer.start()
        await spans.wait(f"process {topic}")  # a handler runs in no context of the program
        await consumer.close()


async def test_traces_and_retries_of_the_client_itself_have_no_spans(
    spans: Spans, name_server: str, topic: str
) -> None:
    options = ProducerOptions(trace=True, trace_batch=1)
    async with Producer(unique("traced"), name_server=name_server, options=options) as producer:
        await producer.send(Message(topic, b"1"))
    assert spans.names() == [f"send {topic}"]


async def test_a_context_that_does_not_fit_is_left_out(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        await producer.send(Message(topic, b"1", properties={"large": "x" * 31_000}))
    [message] = await polled(name_server, topic, 1)
    assert message.get_property("traceparent") is None


async def test_a_hostile_context_is_not_used(spans: Spans, name_server: str, topic: str) -> None:
    """What a stranger writes as context breaks no handler and no send."""
    done = list[str | None]()
    consumer = PushConsumer(unique("group"), name_server=name_server, options=PUSH)

    @consumer.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> None:
        done.extend(message.get_property("traceparent") for message in messages)

    hostile = ("00-zz-\x00-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5000)
    async with Producer("web", name_server=name_server) as producer, consumer:
        for text in hostile:
            properties = {"traceparent": text, "tracestate": "=" * 600, "baggage": "%zz" * 4000}
            await producer.send(Message(topic, b"1", properties=properties))
        await eventually_async(lambda: len(done) == 3)
        await spans.wait(f"process {topic}", 3)
    carried = {f"{id_of(span):016x}" for span in spans.named(f"send {topic}")}
    assert {str(text).split("-")[2] for text in done} == carried, "an invalid context is replaced"


def test_threads(spans: Spans, name_server: str, topic: str) -> None:
    """Each thread's spans are children of its own, also if one wake-up of the loop serves many."""
    producer = blocking.Producer("threads", name_server=name_server)

    def work(number: int) -> None:
        with spans.tracer.start_as_current_span(f"thread {number}"):
            futures = [producer.submit(Message(topic, b"%d" % number)) for _ in range(20)]
            producer.send(Message(topic, b"%d" % number))
            for future in futures:
                future.result(20)

    handled = list[int]()
    consumer = blocking.PushConsumer(unique("group"), name_server=name_server, options=PUSH)

    @consumer.subscribe(topic)
    def handle(messages: list[ReceivedMessage]) -> None:
        handled.append(get_current_span().get_span_context().span_id)

    with producer, consumer, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
        eventually(lambda: len(handled) == 8 * 21)
        eventually(lambda: len(spans.named(f"process {topic}")) == 8 * 21)
    parents = {
        id_of(span): span.name
        for span in spans.exporter.get_finished_spans()
        if span.name.startswith("thread ")
    }
    sends = spans.named(f"send {topic}")
    assert len(sends) == 8 * 21
    of_each = [parents[span.parent.span_id] for span in sends if span.parent is not None]
    assert sorted(of_each) == sorted(f"thread {number}" for number in range(8) for _ in range(21))
    assert set(handled) == set(map(id_of, spans.named(f"process {topic}")))


async def test_orderly_pop_and_broadcasting_handlers(spans: Spans, name_server: str, topic: str) -> None:
    async with Producer("web", name_server=name_server) as producer:
        await producer.send(Message(topic, b"1"))
    [send] = spans.named(f"send {topic}")
    for number, options in enumerate(
        (
            PushConsumerOptions(from_where=FIRST, orderly=True),
            PushConsumerOptions(from_where=FIRST, client_rebalance=False),
        ),
        1,
    ):
        consumer = PushConsumer(unique("group"), name_server=name_server, options=options)

        @consumer.subscribe(topic)
        async def handle(messages: list[ReceivedMessage]) -> ConsumeResult:
            return ConsumeResult.SUCCESS

        async with consumer:
            await spans.wait(f"process {topic}", number)
    assert all(links(span) == [id_of(send)] for span in spans.named(f"process {topic}"))


def test_the_propagator_is_the_global_one() -> None:
    assert set(propagate.get_global_textmap().fields) >= {"traceparent", "tracestate", "baggage"}
