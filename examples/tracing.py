"""A trace from a web request through a message to its handler, printed as a tree.

    pip install 'firearrow[opentelemetry]' opentelemetry-sdk
    NAMESRV_ADDR=127.0.0.1:9876 python examples/tracing.py

A service needs `RocketMQInstrumentor().instrument()` only, or to be started with `opentelemetry-instrument`.
"""

import asyncio
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from firearrow.client.integrations.opentelemetry import RocketMQInstrumentor

TOPIC = "example-traced-orders"


async def main() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("example")
    RocketMQInstrumentor().instrument()

    handled = asyncio.Event()
    consumer = PushConsumer(
        "example-traced-mail", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )

    @consumer.subscribe(TOPIC)
    async def send_mail(messages: Sequence[ReceivedMessage]) -> None:
        with tracer.start_as_current_span("mail"):
            handled.set()

    async with Producer("example-traced-shop") as producer, consumer:
        with tracer.start_as_current_span("POST /orders"):
            await producer.send(Message(TOPIC, b"book", tags="new", keys=["order-42"]))
        async with asyncio.timeout(60):
            await handled.wait()

    spans = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context}
    [mail] = [span for span in spans.values() if span.name == "mail"]
    path: list[ReadableSpan] = [mail]
    while (parent := path[0].parent) is not None:
        path.insert(0, spans[parent.span_id])
    print("one trace:", " > ".join(span.name for span in path))


if __name__ == "__main__":
    asyncio.run(main())
