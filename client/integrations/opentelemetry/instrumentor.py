"""RocketMQInstrumentor: adds CallSpans to the client, the CallHook that makes spans and metrics of its calls.

Contexts are in the message properties that the global propagator writes, by default `traceparent`, `tracestate` and
`baggage`, as those of OpenTelemetry's agent for Java. A send is a PRODUCER span, whose context its message carries; a
batch has a `create` span for each message. A handler's span has the context of its only message as parent, and a link
to each message. Spans of receives are made when the messages are there, so that samplers see the links.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from importlib.metadata import version

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate
    from opentelemetry.context import Context
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
    from opentelemetry.instrumentation.utils import is_instrumentation_enabled
    from opentelemetry.metrics import Meter, MeterProvider, get_meter
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "opentelemetry is missing: pip install 'firearrow[opentelemetry]'", name="opentelemetry"
    ) from error

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.call_hooks import Call, CallKind, add_call_hook, remove_call_hook
from firearrow.client.base.errors import error_text
from firearrow.client.base.message import PROPERTIES_BYTES_MAX, Message
from firearrow.client.integrations.opentelemetry.attributes import (
    BATCH_COUNT,
    DESTINATION,
    ERROR_TYPE,
    MESSAGE_ID,
    OPERATION_NAME,
    OPERATION_TYPE,
    Attributes,
    error_type,
    for_metrics,
    of_call,
    of_message,
    of_server,
    split_common,
)

SCOPE = "firearrow.client"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.43.0"
SPAN, TOKEN, ATTRIBUTES = "otel.span", "otel.token", "otel.attributes"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""As the conventions advise."""
RESERVED_BYTES = 2048
"""Of a message's properties: what the client and brokers add themselves."""


class RocketMQInstrumentor(BaseInstrumentor):
    """`instrument()` and `uninstrument()`; one for the process.

    Arguments of `instrument`: `tracer_provider` and `meter_provider` (default: the global ones), and `create_spans`:
    whether each message of a batch gets a `create` span (default: yes).
    """

    _spans: "CallSpans | None" = None

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("firearrow >= 0.1.0",)

    def _instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        create_spans: bool = True,
        **unused: object,
    ) -> None:
        """`opentelemetry-instrument` may pass arguments for other instrumentors."""
        release = version("firearrow")
        self._spans = CallSpans(
            get_tracer(SCOPE, release, tracer_provider, SCHEMA_URL),
            get_meter(SCOPE, release, meter_provider, SCHEMA_URL),
            creates=create_spans,
        )
        add_call_hook(self._spans)

    def _uninstrument(self, **unused: object) -> None:
        if self._spans is not None:
            remove_call_hook(self._spans)
            self._spans = None


def context_of(message: ReceivedMessage) -> Context:
    """The context that a received message carries, with its baggage: the parent of a span of your own."""
    return propagate.extract(message.properties, context=Context())


class CallSpans:
    """A CallHook. `creates`: each message of a batch gets a `create` span."""

    def __init__(self, tracer: Tracer, meter: Meter, *, creates: bool) -> None:
        self._tracer = tracer
        self._creates = creates
        self._durations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self._process_durations = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Number of messages producer attempted to send to the broker.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )

    def before(self, call: Call, /) -> None:
        if call.kind is CallKind.PROCESS:
            self._begin_process(call)
        elif call.kind is CallKind.SEND and call.messages and is_instrumentation_enabled():
            self._begin_send(call)

    def after(self, call: Call, /) -> None:
        if (token := call.extra.get(TOKEN)) is not None:
            contexts.detach(token)
        if call.kind in (CallKind.RECEIVE, CallKind.SETTLE):
            if not is_instrumentation_enabled() or not (call.messages or call.error):
                return
            self._begin(call, SpanKind.CLIENT, [_carried(message) for message in call.messages])
        if (span := call.extra.get(SPAN)) is not None:
            self._end(call, span)

    # ---- spans ----

    def _begin_process(self, call: Call) -> None:
        """The context around is that of the consumer's start: it is not this message's."""
        carried = [_carried(message) for message in call.messages]
        parent = context_of(call.messages[0]) if len(call.messages) == 1 else Context()
        self._begin(call, SpanKind.CONSUMER, carried, parent)
        call.extra[TOKEN] = contexts.attach(set_span_in_context(call.extra[SPAN], parent))

    def _begin_send(self, call: Call) -> None:
        """A context that the program has put into a message is not changed."""
        custom = [_carried(message) for message in call.messages]
        created: list[Span | None] = [None] * len(custom)
        links = custom
        if call.is_batch and self._creates:
            created = [
                self._create(call, message) if carried is None else None
                for carried, message in zip(custom, call.messages, strict=True)
            ]
            links = [
                carried if span is None else span.get_span_context()
                for span, carried in zip(created, custom, strict=True)
            ]
        self._begin(call, SpanKind.PRODUCER if None in links else SpanKind.CLIENT, links)
        for at, carried in enumerate(custom):
            if carried is None:
                call.messages[at] = _with_context(call.messages[at], created[at] or call.extra[SPAN])
        for span in created:
            if span is not None:
                span.end()

    def _create(self, call: Call, message: Message) -> Span:
        attributes = of_call(call) | of_message(message)
        attributes[OPERATION_NAME] = attributes[OPERATION_TYPE] = "create"
        return self._tracer.start_span(
            f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )

    def _begin(
        self,
        call: Call,
        kind: SpanKind,
        carried: Sequence[SpanContext | None],
        parent: Context | None = None,
    ) -> None:
        """Start the span, with a link to each context; what differs between messages is in the links."""
        attributes = of_call(call)
        differing: list[Attributes] = [{} for _ in carried]
        if call.messages:
            common, differing = split_common([of_message(message) for message in call.messages])
            attributes |= common
        if len(call.messages) == 1:
            differing = [{MESSAGE_ID: attributes[MESSAGE_ID]} if MESSAGE_ID in attributes else {}]
        if call.is_batch or len(call.messages) > 1:
            attributes[BATCH_COUNT] = len(call.messages)
        links = [Link(context, own) for context, own in zip(carried, differing, strict=True) if context]
        topic = attributes.get(DESTINATION)
        call.extra[ATTRIBUTES] = attributes
        call.extra[SPAN] = self._tracer.start_span(
            f"{call.name} {topic}" if topic else call.name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=call.began_ns,
        )

    def _end(self, call: Call, span: Span) -> None:
        ended_ns = time.time_ns()
        late = of_server(call)
        if (failure := error_type(call)) is not None:
            late[ERROR_TYPE] = failure
        if call.kind is CallKind.SEND and len(call.messages) == 1 and call.messages[0].unique_id:
            late[MESSAGE_ID] = call.messages[0].unique_id
        span.set_attributes(late)
        try:
            if failure is not None:
                text = None if call.error is None else error_text(call.error)
                span.set_status(Status(StatusCode.ERROR, text))
            if isinstance(call.error, Exception):
                span.record_exception(call.error)
        finally:  # the text of an error is the program's code, which may raise
            span.end(ended_ns)
            took_s = (ended_ns - call.began_ns) / 1e9
            self._measure(call, for_metrics(call.extra[ATTRIBUTES] | late), took_s, span)

    def _measure(self, call: Call, attributes: Attributes, took_s: float, span: Span) -> None:
        context = set_span_in_context(span)
        without_type = {name: value for name, value in attributes.items() if name != OPERATION_TYPE}
        if call.kind is CallKind.PROCESS:
            self._process_durations.record(max(took_s, 0), attributes, context)
            if call.name == "process":
                self._consumed.add(len(call.messages), without_type, context)
            return
        self._durations.record(max(took_s, 0), attributes, context)
        if call.kind is CallKind.SEND:
            self._sent.add(len(call.messages), without_type, context)
        elif call.kind is CallKind.RECEIVE and call.messages:
            self._consumed.add(len(call.messages), without_type, context)


def _carried(message: Message | ReceivedMessage) -> SpanContext | None:
    """The span of the context in the message's properties."""
    if not message.properties:
        return None
    found = get_current_span(propagate.extract(message.properties, context=Context())).get_span_context()
    return found if found.is_valid else None


def _with_context(message: Message, span: Span) -> Message:
    """A copy with the span's context and the current baggage; without them if they do not fit."""
    fields: dict[str, str] = {}
    propagate.inject(fields, context=set_span_in_context(span))
    properties = message.properties | {name: value for name, value in fields.items() if value}
    texts = (*properties, *properties.values(), *message.keys, message.tags or "", message.sharding_key or "")
    if (
        sum(len(text.encode("utf-8", "replace")) + 1 for text in texts)
        > PROPERTIES_BYTES_MAX - RESERVED_BYTES
    ):
        return message
    return replace(message, properties=properties)
