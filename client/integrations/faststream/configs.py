"""Configuration of brokers, subscribers and publishers, their keyword arguments, and the columns of the log."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypedDict

try:
    import faststream  # noqa: F401 (the first import of FastStream)
except ImportError:
    raise ImportError(
        "firearrow.client.integrations.faststream needs FastStream: pip install 'firearrow[faststream]'"
    ) from None

from fast_depends import Provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker.registrator import Registrator
from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
    UnderlyingDriverAnnotations,
)
from faststream._internal.constants import EMPTY
from faststream._internal.context import ContextRepo
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification.schema.extra import Tag, TagDict

from firearrow.client.base.options import (
    ClientOptions,
    ConsumeFromWhere,
    Credentials,
    PopConsumerOptions,
    ProducerOptions,
)

POP_MAX = int(PopConsumerOptions.RANGES["batch"][1])
"""Most messages of one pop."""


class MessageOptions(TypedDict, total=False):
    """What a message has beside its body and headers, as the fields of `firearrow.client.Message`."""

    tags: str | None
    keys: Sequence[str]
    sharding_key: str | None
    priority: int | None
    delay_s: float | None
    deliver_at_ms: int | None
    delay_level: int


class _EndpointOptions(TypedDict, total=False):
    title: str | None
    description: str | None
    include_in_schema: bool
    persistent: bool


class PublisherOptions(MessageOptions, _EndpointOptions, total=False):
    """Keyword arguments of `publisher`. `batch`: a handler returns the messages of one batch."""

    batch: bool
    headers: Mapping[str, object] | None
    reply_to: str
    schema: Any


class ConsumptionOptions(TypedDict, total=False):
    """Keyword arguments of `subscriber` that are RocketMQ's; see Consumption."""

    group: str | None
    tags: str | None
    sql: str | None
    from_where: ConsumeFromWhere
    orderly: bool
    broadcasting: bool
    batch: bool
    max_records: int
    max_workers: int
    prefetch: int
    invisible_s: float
    max_reconsume_times: int
    retry_delay_s: float | None


class SubscriberOptions(ConsumptionOptions, _EndpointOptions, total=False):
    """All keyword arguments of `subscriber`."""

    dependencies: Sequence[Dependant]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    ack_policy: AckPolicy
    no_reply: bool


class RouterOptions(TypedDict, total=False):
    """Keyword arguments of a router, which a broker has as well."""

    dependencies: Sequence[Dependant]
    middlewares: Sequence[BrokerMiddleware[Any, Any]]
    routers: Iterable[Registrator[Any, Any]]
    parser: CustomCallable | None
    decoder: CustomCallable | None
    codec: CodecProto | None
    ack_policy: AckPolicy
    underlying_driver_annotations: UnderlyingDriverAnnotations | None


class BrokerOptions(RouterOptions, total=False):
    """Keyword arguments of a broker that are FastStream's."""

    graceful_timeout: float | None
    id_generator: Callable[[], str]
    specification_url: str | Iterable[str] | None
    protocol: str | None
    protocol_version: str | None
    description: str | None
    tags: Iterable[Tag | TagDict]
    logger: LoggerProto | None
    log_level: int
    apply_types: bool
    provider: Provider | None
    serializer: SerializerProto | None
    context: ContextRepo | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """How a subscriber consumes. SetupError: the values do not fit together."""

    group: str | None = None
    """The consumer group; None: that of the broker, `-` and the topics."""
    tags: str | None = None
    """A filter by tags, separated by `||`."""
    sql: str | None = None
    """A filter by an SQL92 expression over properties."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    """Where a new group starts: at the first or after the last message."""
    orderly: bool = False
    """Handles the messages of a queue, and so those with the same sharding key, one after the other."""
    broadcasting: bool = False
    """Each process gets all messages. Failed ones do not come again."""
    batch: bool = False
    """The handler gets a list."""
    max_records: int = POP_MAX
    """Most messages of a batch."""
    max_workers: int = 1
    """Most calls of the handler at a time."""
    prefetch: int = POP_MAX
    """Most messages that wait for a worker; 0 where messages take long. Not with `batch` or `orderly`."""
    invisible_s: float = 60
    """How long other members do not get a message whose process has died. It is renewed while a handler runs."""
    max_reconsume_times: int = 16
    """A `nack` after this number of redeliveries makes a dead letter."""
    retry_delay_s: float | None = None
    """Delay of each redelivery; None: RocketMQ's growing delays, from 10 s to 2 h."""

    def __post_init__(self) -> None:
        if self.tags is not None and self.sql is not None:
            raise SetupError("give either tags or sql, not both")
        if self.broadcasting and self.orderly:
            raise SetupError("a subscriber cannot be both broadcasting and orderly")
        if min(self.max_records, self.max_workers) < 1 or min(self.prefetch, self.max_reconsume_times) < 0:
            raise SetupError("max_records and max_workers must be at least 1, the other counts at least 0")
        if not 1 <= self.invisible_s <= 3 * 86400:
            raise SetupError(f"invisible_s must be 1 to {3 * 86400}, not {self.invisible_s}")
        if self.retry_delay_s is not None and not 0 <= self.retry_delay_s <= 3 * 86400:
            raise SetupError(f"retry_delay_s must be 0 to {3 * 86400}, not {self.retry_delay_s}")


@dataclass(kw_only=True)
class RocketMQBrokerConfig(BrokerConfig):
    """`group` is that of the producer, and the start of the groups of subscribers without one."""

    group: str = "faststream"
    client: ClientOptions = field(default_factory=ClientOptions)
    producer_options: ProducerOptions = field(default_factory=ProducerOptions)


@dataclass(kw_only=True)
class RocketMQSubscriberConfig(SubscriberUsecaseConfig):
    topics: Sequence[str]
    consumption: Consumption

    @property
    def ack_policy(self) -> AckPolicy:
        """NACK_ON_ERROR unless the subscriber, its router or broker has another one; of broadcasts ACK."""
        policy = self._ack_policy if self._ack_policy is not EMPTY else self._outer_config.ack_policy
        if self.consumption.broadcasting:
            return AckPolicy.ACK if policy in (EMPTY, *REDELIVERING) else policy
        return AckPolicy.NACK_ON_ERROR if policy is EMPTY else policy


REDELIVERING = (AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR)
"""What a broker does for a group only, not for the members of a broadcast."""


@dataclass(kw_only=True)
class RocketMQPublisherConfig(PublisherUsecaseConfig):
    topic: str
    headers: Mapping[str, object]
    reply_to: str
    options: MessageOptions


@dataclass(kw_only=True)
class SubscriberSpecificationOptions(SubscriberSpecificationConfig):
    topics: Sequence[str]


@dataclass(kw_only=True)
class PublisherSpecificationOptions(PublisherSpecificationConfig):
    topic: str


def secured(client: ClientOptions, security: BaseSecurity | None) -> ClientOptions:
    """The options with the login and TLS of FastStream's security. SetupError: RocketMQ has no such login."""
    if security is None:
        return client
    if type(security) not in (BaseSecurity, SASLPlaintext):
        raise SetupError(
            f"{type(security).__name__} is not supported: give SASLPlaintext(access key, secret key), "
            "or BaseSecurity for TLS alone"
        )
    if isinstance(security, SASLPlaintext):
        client = replace(client, credentials=Credentials(security.username, security.password))
    if security.use_ssl:
        client = replace(client, tls=security.ssl_context or client.tls or True)
    return client


class _LogColumns(DefaultLoggerStorage):
    """Widths of the columns `topic` and `group` of the broker's log."""

    __slots__ = ("_group_chars", "_level", "_topic_chars")

    def __init__(self) -> None:
        super().__init__()
        self._topic_chars, self._group_chars = 4, 0
        self._level = logging.INFO

    def set_level(self, level: int) -> None:
        self._level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._topic_chars = max(self._topic_chars, len(params.get("topic", "")))
        self._group_chars = max(self._group_chars, len(params.get("group", "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        if logger := self._get_logger_ref():
            return logger
        columns = f"%(topic)-{self._topic_chars}s | %(group)-{self._group_chars}s | %(message_id)-32s"
        logger = get_broker_logger(
            name="rocketmq",
            default_context={"topic": "", "group": ""},
            message_id_ln=32,
            fmt=f"%(asctime)s %(levelname)-8s - {columns} - %(message)s",
            context=context,
            log_level=self._level,
        )
        self._logger_ref.add(logger)
        return logger


make_rocketmq_logger_state = partial(make_logger_state, default_storage_cls=_LogColumns)
