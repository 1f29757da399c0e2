"""RocketMQRegistrator: `subscriber` and `publisher` of brokers and routers; RocketMQRouter, and what it registers."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError

from firearrow.client.base.hooks import check_known
from firearrow.client.integrations.faststream.configs import (
    REDELIVERING,
    Consumption,
    ConsumptionOptions,
    MessageOptions,
    PublisherOptions,
    PublisherSpecificationOptions,
    RocketMQPublisherConfig,
    RocketMQSubscriberConfig,
    RouterOptions,
    SubscriberOptions,
    SubscriberSpecificationOptions,
)
from firearrow.client.integrations.faststream.message import RawMessage
from firearrow.client.integrations.faststream.publisher import (
    BatchPublisher,
    RocketMQPublisherSpecification,
    TopicPublisher,
)
from firearrow.client.integrations.faststream.subscriber import (
    RocketMQSubscriber,
    RocketMQSubscriberSpecification,
)


class RocketMQRegistrator(Registrator[RawMessage, BrokerConfig]):
    """Registers subscribers and publishers."""

    def subscriber(self, *topics: str, **options: Unpack[SubscriberOptions]) -> RocketMQSubscriber:  # type: ignore[override]  # that of FastStream registers a made one
        """A decorator of handlers of the topics' messages. SetupError: the options do not fit together."""
        check_known(options, SubscriberOptions)
        if not topics:
            raise SetupError("a subscriber needs at least one topic")
        of_rocketmq = {name: value for name, value in options.items() if name in _CONSUMPTION}
        consumption = Consumption(**cast("ConsumptionOptions", of_rocketmq))
        policy = options.get("ack_policy", EMPTY)
        if consumption.broadcasting and policy in REDELIVERING:
            raise SetupError(
                f"broadcasts do not come again: {policy} needs a subscriber that is not broadcasting"
            )
        calls: CallsCollection[Any] = CallsCollection()
        outer = cast("Any", self.config)
        subscriber = RocketMQSubscriber(
            RocketMQSubscriberConfig(
                topics=topics,
                consumption=consumption,
                no_reply=options.get("no_reply", False),
                _outer_config=outer,
                _ack_policy=policy,
            ),
            RocketMQSubscriberSpecification(
                outer,
                SubscriberSpecificationOptions(
                    topics=topics,
                    title_=options.get("title"),
                    description_=options.get("description"),
                    include_in_schema=options.get("include_in_schema", True),
                ),
                calls,
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=options.get("persistent", True))
        subscriber.add_call(
            parser_=options.get("parser"),
            decoder_=options.get("decoder"),
            dependencies_=options.get("dependencies", ()),
            codec_=options.get("codec"),
        )
        return subscriber

    def publisher(self, topic: str, **options: Unpack[PublisherOptions]) -> TopicPublisher | BatchPublisher:  # type: ignore[override]  # as above
        """An object that publishes to the topic, and a decorator that sends there what a handler returns."""
        check_known(options, PublisherOptions)
        message = {name: value for name, value in options.items() if name in _MESSAGE}
        outer = cast("Any", self.config)
        kind = BatchPublisher if options.get("batch", False) else TopicPublisher
        publisher = kind(
            RocketMQPublisherConfig(
                topic=topic,
                headers=options.get("headers") or {},
                reply_to=options.get("reply_to", ""),
                options=cast("MessageOptions", message),
                _outer_config=outer,
            ),
            RocketMQPublisherSpecification(
                outer,
                PublisherSpecificationOptions(
                    topic=topic,
                    schema_=options.get("schema"),
                    title_=options.get("title"),
                    description_=options.get("description"),
                    include_in_schema=options.get("include_in_schema", True),
                ),
            ),
        )
        super().publisher(publisher, persistent=options.get("persistent", True))
        return publisher

    def include_router(self, router: "RocketMQRegistrator", **options: Any) -> None:  # type: ignore[override]
        """SetupError: it is a router of another broker."""
        if not isinstance(router, RocketMQRegistrator):
            raise SetupError(f"a {type(router).__name__} cannot be included: RocketMQ needs a RocketMQRouter")
        super().include_router(router, **options)


_CONSUMPTION = ConsumptionOptions.__annotations__.keys()
_MESSAGE = MessageOptions.__annotations__.keys()


class RocketMQPublisher(ArgsContainer):
    """A publisher of a RocketMQRoute; the arguments of `publisher`."""

    def __init__(self, topic: str, **options: Unpack[PublisherOptions]) -> None:
        super().__init__(topic, **options)


class RocketMQRoute(SubscriberRoute):
    """A subscriber of a RocketMQRouter; the arguments of `subscriber`."""

    def __init__(
        self,
        call: Callable[..., Any] | Callable[..., Awaitable[Any]],
        *topics: str,
        publishers: Iterable[RocketMQPublisher] = (),
        **options: Unpack[SubscriberOptions],
    ) -> None:
        super().__init__(call, *topics, publishers=publishers, **options)


class RocketMQRouter(RocketMQRegistrator, BrokerRouter[RawMessage, BrokerConfig]):
    """Subscribers and publishers that a broker, or another router, includes. `prefix` begins all their topics."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[RocketMQRoute] = (),
        *,
        include_in_schema: bool | None = None,
        **options: Unpack[RouterOptions],
    ) -> None:
        check_known(options, RouterOptions)
        super().__init__(
            handlers=handlers,
            config=BrokerConfig(prefix=prefix, include_in_schema=include_in_schema, **router_config(options)),
            routers=options.get("routers", ()),
        )


def router_config(options: RouterOptions) -> dict[str, Any]:
    """What a router's and a broker's configuration have in common."""
    return {
        "broker_dependencies": options.get("dependencies", ()),
        "broker_middlewares": options.get("middlewares", ()),
        "broker_parser": options.get("parser"),
        "broker_decoder": options.get("decoder"),
        "broker_codec": options.get("codec"),
        "ack_policy": options.get("ack_policy", EMPTY),
        "underlying_driver_annotations": options.get("underlying_driver_annotations") or {},
    }
