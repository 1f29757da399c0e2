"""Metrics of the client: names, units, buckets, attributes, and what each call counts."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.instrumentation")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    MessageRefused,
    PopConsumer,
    PopConsumerOptions,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from firearrow.client.integrations.opentelemetry import RocketMQInstrumentor
from tests.integrations.conftest import unique
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
Metrics = Callable[[], dict[str, Metric]]


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    reader = InMemoryMetricReader()

    def collect() -> dict[str, Metric]:
        data = reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    RocketMQInstrumentor().instrument(meter_provider=MeterProvider([reader]))
    try:
        yield collect
    finally:
        RocketMQInstrumentor().uninstrument()


def points(metric: Metric, **wanted: str) -> list[Any]:
    """Those whose attributes end with these names."""
    found = []
    for point in metric.data.data_points:
        last = {name.removeprefix("messaging."): value for name, value in (point.attributes or {}).items()}
        if all(last.get(name.replace("_", ".")) == value for name, value in wanted.items()):
            found.append(point)
    return found


async def test_what_each_call_counts(metrics: Metrics, name_server: str, site: Peer, topic: str) -> None:
    handled = list[int]()
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(unique("group"), name_server=name_server, options=options)

    @consumer.subscribe(topic)
    async def handle(messages: list[ReceivedMessage]) -> None:
        handled.extend(message.queue_id for message in messages)

    async with Producer("web", name_server=name_server) as producer, consumer:
        for _ in range(3):
            await producer.send(Message(topic, b"1"))
        await producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        with pytest.raises(MessageRefused):
            await producer.send(Message(topic, b"1", properties={"": "x"}))
        await eventually_async(lambda: len(handled) == 5)
    pop_options = PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET, wait_s=1)
    async with PopConsumer(unique("pop"), name_server=name_server, options=pop_options) as popping:
        popping.subscribe(topic)
        popped = list[ReceivedMessage]()
        async with asyncio.timeout(20):
            while len(popped) < 5:
                popped += await popping.receive()
        await popping.ack_batch(popped)
    found = metrics()

    assert {name: metric.unit for name, metric in found.items()} == {
        "messaging.client.operation.duration": "s",
        "messaging.client.sent.messages": "{message}",
        "messaging.client.consumed.messages": "{message}",
        "messaging.process.duration": "s",
    }
    sent = found["messaging.client.sent.messages"]
    assert [
        point.value for point in sent.data.data_points if "error.type" not in (point.attributes or {})
    ] == [5]
    [failed] = [point for point in sent.data.data_points if "error.type" in (point.attributes or {})]
    assert failed.value == 1
    host, port = site.address.rsplit(":", 1)
    [point] = points(sent, server_port=int(port))  # type: ignore[arg-type]
    assert dict(point.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.destination.name": topic,
        "server.address": host,
        "server.port": int(port),
    }
    consumed = found["messaging.client.consumed.messages"]
    assert sum(point.value for point in points(consumed, operation_name="process")) == 5
    assert sum(point.value for point in points(consumed, operation_name="receive")) == 5
    durations, process = found["messaging.client.operation.duration"], found["messaging.process.duration"]
    assert all(
        point.explicit_bounds == BUCKETS for point in (*durations.data.data_points, *process.data.data_points)
    )
    assert sum(point.count for point in process.data.data_points) == len(handled)
    assert all(point.sum > 0 for point in durations.data.data_points)
    assert sum(point.count for point in points(durations, operation_name="send")) == 5
    [ack] = points(durations, operation_name="ack")
    assert ack.attributes["messaging.operation.type"] == "settle"
