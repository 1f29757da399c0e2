"""RocketMQResponse and RocketMQPublishCommand: what a handler returns, and what a publisher sends."""

from collections.abc import Mapping
from typing import Any, Unpack

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.hooks import check_known
from firearrow.client.integrations.faststream.configs import MessageOptions

REQUEST_TIMEOUT_S = 3.0


class RocketMQResponse(Response):
    """The result of a handler, with the options of the message that it becomes."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        check_known(options, MessageOptions)
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = options

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: object) -> dict[str, Any]:
        """In the AsyncAPI document such a handler returns anything; `schema` of the publisher states more."""
        return {}

    def as_publish_command(self) -> "RocketMQPublishCommand":
        return RocketMQPublishCommand(
            self.body,
            topic="",
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
            _publish_type=PublishType.PUBLISH,
        )


class RocketMQPublishCommand(BatchPublishCommand):
    """What middlewares see of a message, or of a batch, before it is sent.

    `request` is the message that this is the reply to, by RocketMQ's request and reply.
    """

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        topic: str,
        _publish_type: PublishType,
        reply_to: str = "",
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
        options: MessageOptions | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            destination=topic,
            reply_to=reply_to,
            correlation_id=correlation_id,
            headers=dict(headers or {}),
            _publish_type=_publish_type,
        )
        self.options: MessageOptions = options or {}
        self.timeout = timeout
        self.request: ReceivedMessage | None = None

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "RocketMQPublishCommand":
        if isinstance(cmd, RocketMQPublishCommand):
            if batch and not cmd.extra_bodies:
                cmd.body, cmd.extra_bodies = cls._parse_bodies(cmd.body, batch=True)
            return cmd
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *more,
            topic=cmd.destination,
            reply_to=cmd.reply_to,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            _publish_type=cmd.publish_type,
        )

    def headers_to_publish(self) -> dict[str, Any]:
        own = {"correlation_id": self.correlation_id, "reply_to": self.reply_to}
        return {name: value for name, value in own.items() if value} | self.headers


RocketMQPublishMessage = RocketMQResponse
"""The same, where it is published directly."""
