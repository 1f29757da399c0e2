"""RocketMQTelemetryMiddleware: FastStream's spans and metrics, with the attributes of messaging.rocketmq."""

from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.semconv.trace import SpanAttributes
from opentelemetry.trace import TracerProvider

from firearrow.client.base.message import Property
from firearrow.client.integrations.faststream.message import RawMessage
from firearrow.client.integrations.faststream.response import RocketMQPublishCommand

__all__ = ["RocketMQTelemetryMiddleware"]


def __dir__() -> list[str]:
    return sorted(__all__)


SYSTEM = "rocketmq"


class RocketMQTelemetry(TelemetrySettingsProvider[RawMessage, RocketMQPublishCommand]):
    """Attributes of the spans of messages and batches; a batch has those of its first message."""

    __slots__ = ("messaging_system",)

    def __init__(self) -> None:
        self.messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> dict[str, Any]:
        raw = msg.raw_message
        messages = raw if isinstance(raw, tuple) else (raw,)
        first = messages[0]
        attributes: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: sum(len(one.body) for one in messages),
            MESSAGING_DESTINATION_PUBLISH_NAME: first.topic,
        }
        if isinstance(raw, tuple):
            attributes[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(raw)
        group = first.get_property(Property.SHARDING_KEY)
        return attributes | _of_rocketmq(first.tags, first.keys, group)

    def get_consume_destination_name(self, msg: StreamMessage[RawMessage]) -> str:
        raw = msg.raw_message
        return (raw[0] if isinstance(raw, tuple) else raw).topic

    def get_publish_attrs_from_cmd(self, cmd: RocketMQPublishCommand) -> dict[str, Any]:
        options = cmd.options
        attributes: dict[str, Any] = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id,
        }
        if cmd.extra_bodies:
            attributes[SpanAttributes.MESSAGING_BATCH_MESSAGE_COUNT] = len(cmd.batch_bodies)
        if (level := options.get("delay_level", 0)) > 0:
            attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_DELAY_TIME_LEVEL] = level
        if (deliver_at_ms := options.get("deliver_at_ms")) is not None:
            attributes[SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_DELIVERY_TIMESTAMP] = deliver_at_ms
        tags, keys, group = options.get("tags"), tuple(options.get("keys", ())), options.get("sharding_key")
        return attributes | _of_rocketmq(tags, keys, group)

    def get_publish_destination_name(self, cmd: RocketMQPublishCommand) -> str:
        return cmd.destination


def _of_rocketmq(tags: str | None, keys: tuple[str, ...], group: str | None) -> dict[str, Any]:
    attributes = {
        SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_TAG: tags,
        SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_KEYS: keys,
        SpanAttributes.MESSAGING_ROCKETMQ_MESSAGE_GROUP: group,
    }
    return {name: value for name, value in attributes.items() if value}


class RocketMQTelemetryMiddleware(TelemetryMiddleware[RocketMQPublishCommand]):
    """`RocketMQBroker(middlewares=[RocketMQTelemetryMiddleware(tracer_provider=provider)])`."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketMQTelemetry(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )
