"""RocketMQRouter for FastAPI: subscribers and publishers beside HTTP routes, with FastAPI's dependencies.

`app.include_router(router)` starts and stops the broker with the application, and serves the AsyncAPI document.
"""

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict, Unpack

from fastapi import params
from fastapi.datastructures import Default
from fastapi.types import IncEx
from faststream._internal.context import ContextRepo as _ContextRepo
from faststream._internal.fastapi.context import Context, ContextRepo, Logger
from faststream._internal.fastapi.router import StreamRouter

from firearrow.client.integrations.faststream.broker import RocketMQBroker as _Broker
from firearrow.client.integrations.faststream.configs import PublisherOptions
from firearrow.client.integrations.faststream.message import RawMessage
from firearrow.client.integrations.faststream.message import RocketMQMessage as _Message
from firearrow.client.integrations.faststream.publisher import BatchPublisher, TopicPublisher
from firearrow.client.send.producer import Producer as _Producer

__all__ = [
    "Context",
    "ContextRepo",
    "Logger",
    "Producer",
    "RocketMQBroker",
    "RocketMQMessage",
    "RocketMQRouter",
]


def __dir__() -> list[str]:
    return sorted(__all__)


RocketMQMessage = Annotated[_Message, Context("message")]
RocketMQBroker = Annotated[_Broker, Context("broker")]
Producer = Annotated[_Producer, Context("broker._connection")]


class ResponseOptions(TypedDict, total=False):
    """FastAPI's arguments of a route."""

    dependencies: Iterable[params.Depends]
    response_model: Any
    response_model_include: IncEx | None
    response_model_exclude: IncEx | None
    response_model_by_alias: bool
    response_model_exclude_unset: bool
    response_model_exclude_defaults: bool
    response_model_exclude_none: bool


_DEFAULTS = ResponseOptions(
    dependencies=(),
    response_model=Default(None),
    response_model_include=None,
    response_model_exclude=None,
    response_model_by_alias=True,
    response_model_exclude_unset=False,
    response_model_exclude_defaults=False,
    response_model_exclude_none=False,
)


class RocketMQRouter(StreamRouter[RawMessage]):
    """The arguments are those of RocketMQBroker and of FastAPI's APIRouter.

    `tags` are FastAPI's, `specification_tags` the broker's.
    """

    broker_class = _Broker
    broker: _Broker

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        context: _ContextRepo | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name_server, context=context, **options)

    def subscriber(self, *topics: str, **options: Any) -> Any:  # type: ignore[override]  # FastStream's has no defaults
        """The arguments are those of RocketMQBroker.subscriber, and FastAPI's of a route (ResponseOptions)."""
        return super().subscriber(*topics, **{**_DEFAULTS, **options})

    def publisher(self, topic: str, **options: Unpack[PublisherOptions]) -> TopicPublisher | BatchPublisher:  # type: ignore[override]
        return self.broker.publisher(topic, **options)
