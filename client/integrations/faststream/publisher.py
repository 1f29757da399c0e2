"""RocketMQPublisher's use: sends to one topic, alone or with what a handler returns."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack, cast

from faststream._internal.basic_types import SendableMessage
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.types import PublisherMiddleware
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from firearrow.client.base.message import SendResult
from firearrow.client.integrations.faststream.configs import (
    MessageOptions,
    PublisherSpecificationOptions,
    RocketMQBrokerConfig,
    RocketMQPublisherConfig,
)
from firearrow.client.integrations.faststream.message import RocketMQMessage
from firearrow.client.integrations.faststream.response import REQUEST_TIMEOUT_S, RocketMQPublishCommand


class RocketMQPublisherSpecification(
    PublisherSpecification[RocketMQBrokerConfig, PublisherSpecificationOptions]
):
    """A channel of the AsyncAPI document."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = MessageSpec(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class TopicPublisher(PublisherUsecase):
    """What `publisher` returns: a decorator, and an object with `publish` and `request`.

    With `batch` each call, and each list that a handler returns, is a batch.
    """

    def __init__(
        self, config: RocketMQPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self.config = config

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    async def publish(
        self,
        *messages: SendableMessage,
        topic: str = "",
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[MessageOptions],
    ) -> SendResult | list[SendResult]:
        """Send a message, or with `batch` all of them as a batch; the options replace those of the publisher."""
        if len(messages) != 1 and not self.config.batch:
            raise TypeError(f"publish takes one message, not {len(messages)}: several need batch=True")
        cmd = RocketMQPublishCommand(
            *(messages or (None,)),
            topic=topic or self.topic,
            headers={**self.config.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.config.reply_to,
            options={**self.config.options, **options},
            _publish_type=PublishType.PUBLISH,
        )
        return await self._send(cmd, ())

    async def request(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[MessageOptions],
    ) -> RocketMQMessage:
        """Send and wait for the reply. TimeoutError."""
        cmd = RocketMQPublishCommand(
            message,
            topic=topic or self.topic,
            headers={**self.config.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            options={**self.config.options, **options},
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply = await self._basic_request(cmd, producer=self._outer_config.producer)
        return cast("RocketMQMessage", reply)

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Send what a handler returned."""
        result = RocketMQPublishCommand.from_cmd(cmd, batch=self.config.batch)
        if self.config.batch and not result.batch_bodies:
            result.batch_bodies = (b"",)  # one empty message, as a single publisher sends
        result.destination = self.topic
        result.add_headers(dict(self.config.headers), override=False)
        result.reply_to = result.reply_to or self.config.reply_to
        result.options = {**self.config.options, **result.options}
        await self._send(result, _extra_middlewares)

    async def _send(
        self, cmd: RocketMQPublishCommand, middlewares: Iterable[PublisherMiddleware]
    ) -> SendResult | list[SendResult]:
        publish = self._basic_publish_batch if self.config.batch else self._basic_publish
        result = await publish(cmd, producer=self._outer_config.producer, _extra_middlewares=middlewares)
        return cast("SendResult | list[SendResult]", result)
