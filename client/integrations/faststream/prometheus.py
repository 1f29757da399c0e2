"""RocketMQPrometheusMiddleware: FastStream's metrics of received and published messages."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware
from faststream.response import PublishCommand

from firearrow.client.integrations.faststream.message import RawMessage
from firearrow.client.integrations.faststream.response import RocketMQPublishCommand

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["RocketMQPrometheusMiddleware"]


def __dir__() -> list[str]:
    return sorted(__all__)


SYSTEM = "rocketmq"


class RocketMQMetrics(MetricsSettingsProvider[RawMessage]):
    """Labels and sizes of messages and batches."""

    __slots__ = ("messaging_system",)

    def __init__(self) -> None:
        self.messaging_system = SYSTEM

    def get_consume_attrs_from_message(self, msg: StreamMessage[RawMessage]) -> ConsumeAttrs:
        raw = msg.raw_message
        messages = raw if isinstance(raw, tuple) else (raw,)
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(message.body) for message in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: PublishCommand) -> str:
        return cmd.destination


class RocketMQPrometheusMiddleware(PrometheusMiddleware[RawMessage, RocketMQPublishCommand]):
    """`RocketMQBroker(middlewares=[RocketMQPrometheusMiddleware(registry=registry)])`."""

    def __init__(
        self,
        *,
        registry: "CollectorRegistry",
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: RocketMQMetrics(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )
