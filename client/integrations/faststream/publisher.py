"""RocketMQPublisher's use: sends to one topic, alone or with what a handler returns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack, cast

from faststream._internal.basic_types import SendableMessage
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.types import PublisherMiddleware
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from firearrow.client.base.hooks import check_known
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


class _Publisher(PublisherUsecase):
    """What single and batch publishers have in common."""

    def __init__(
        self, config: RocketMQPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self.config = config

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

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
        cmd = self._command((message,), topic, headers, correlation_id, options)
        cmd.publish_type, cmd.timeout = PublishType.REQUEST, timeout
        reply = await self._basic_request(cmd, producer=self._outer_config.producer)
        return cast("RocketMQMessage", reply)

    def _command(
        self,
        messages: Sequence[SendableMessage],
        topic: str,
        headers: Mapping[str, Any] | None,
        correlation_id: str | None,
        options: MessageOptions,
        reply_to: str = "",
    ) -> RocketMQPublishCommand:
        """What is given replaces what the publisher has."""
        check_known(options, MessageOptions)
        return RocketMQPublishCommand(
            *messages,
            topic=topic or self.topic,
            headers={**self.config.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.config.reply_to,
            options={**self.config.options, **options},
            _publish_type=PublishType.PUBLISH,
        )

    def _completed(self, cmd: PublishCommand, *, batch: bool) -> RocketMQPublishCommand:
        """What a handler returned, with what the publisher has."""
        result = RocketMQPublishCommand.from_cmd(cmd, batch=batch)
        result.destination = self.topic
        result.add_headers(dict(self.config.headers), override=False)
        result.reply_to = result.reply_to or self.config.reply_to
        result.options = {**self.config.options, **result.options}
        return result


class TopicPublisher(_Publisher):
    """What `publisher` returns: a decorator, and an object with `publish` and `request`."""

    async def publish(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send a message; what is given here replaces what the publisher has."""
        cmd = self._command((message,), topic, headers, correlation_id, options, reply_to)
        producer = self._outer_config.producer
        return cast("SendResult", await self._basic_publish(cmd, producer=producer, _extra_middlewares=()))

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        await self._basic_publish(
            self._completed(cmd, batch=False),
            producer=self._outer_config.producer,
            _extra_middlewares=_extra_middlewares,
        )


class BatchPublisher(_Publisher):
    """That of `batch=True`: each call, and each list that a handler returns, is a batch."""

    async def publish(
        self,
        *messages: SendableMessage,
        topic: str = "",
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[MessageOptions],
    ) -> list[SendResult]:
        """Send the messages as a batch: one result for each request."""
        cmd = self._command(messages or (b"",), topic, headers, correlation_id, options, reply_to)
        return await self._send(cmd, ())

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        result = self._completed(cmd, batch=True)
        if not result.batch_bodies:
            result.batch_bodies = (b"",)  # an empty message, as a single publisher sends
        await self._send(result, _extra_middlewares)

    async def _send(
        self, cmd: RocketMQPublishCommand, middlewares: Iterable[PublisherMiddleware]
    ) -> list[SendResult]:
        producer = self._outer_config.producer
        results = await self._basic_publish_batch(cmd, producer=producer, _extra_middlewares=middlewares)
        return cast("list[SendResult]", results)
