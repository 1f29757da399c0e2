"""RocketMQBroker: connects a FastStream application to RocketMQ."""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Unpack, cast

from fast_depends import dependency_provider
from faststream._internal.basic_types import SendableMessage
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.security import BaseSecurity
from faststream.specification.schema import BrokerSpec

from firearrow._native.protocol.name_rules import SELF_TEST_TOPIC
from firearrow.client.base.errors import ClientError
from firearrow.client.base.hooks import check_known
from firearrow.client.base.message import SendResult
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.integrations.faststream.configs import (
    BrokerOptions,
    MessageOptions,
    RocketMQBrokerConfig,
    make_rocketmq_logger_state,
    secured,
)
from firearrow.client.integrations.faststream.message import RawMessage, RocketMQMessage
from firearrow.client.integrations.faststream.producer import RocketMQFastProducer
from firearrow.client.integrations.faststream.registrator import RocketMQRegistrator, router_config
from firearrow.client.integrations.faststream.response import REQUEST_TIMEOUT_S, RocketMQPublishCommand
from firearrow.client.send.producer import Producer

DEFAULT_NAME_SERVER = "localhost:9876"
PING_PAUSE_S = 0.2


class RocketMQBroker(RocketMQRegistrator, BrokerUsecase[RawMessage, Producer, RocketMQBrokerConfig]):
    """`name_server`: `host:port;host:port` or several; without it NAMESRV_ADDR, or localhost:9876.

    `group` is that of the producer, and the start of the groups of subscribers without one. `client` and `producer`
    are the options of `firearrow.client`.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str = "faststream",
        client: ClientOptions | None = None,
        producer: ProducerOptions | None = None,
        security: BaseSecurity | None = None,
        **options: Unpack[BrokerOptions],
    ) -> None:
        check_known(options, BrokerOptions)
        names = _name_servers(name_server, client)
        url = options.get("specification_url") or names
        secure = security is not None and security.use_ssl
        super().__init__(
            routers=options.get("routers", ()),
            config=RocketMQBrokerConfig(
                group=group,
                client=secured(replace(client or ClientOptions(), name_server=";".join(names)), security),
                producer_options=producer or ProducerOptions(),
                producer=RocketMQFastProducer(options.get("parser"), options.get("decoder")),
                logger=make_rocketmq_logger_state(
                    logger=options.get("logger", EMPTY), log_level=options.get("log_level", logging.INFO)
                ),
                fd_config=FastDependsConfig(
                    use_fastdepends=options.get("apply_types", True),
                    serializer=options.get("serializer", EMPTY),
                    provider=options.get("provider") or dependency_provider,
                    context=options.get("context") or ContextRepo(),
                ),
                graceful_timeout=options.get("graceful_timeout", 15.0),
                id_generator=options.get("id_generator", gen_cor_id),
                extra_context={"broker": self},
                **router_config(options),
            ),
            specification=BrokerSpec(
                url=[url] if isinstance(url, str) else list(url),
                protocol=options.get("protocol") or ("rocketmq-secure" if secure else "rocketmq"),
                protocol_version=options.get("protocol_version", "custom"),
                description=options.get("description"),
                tags=options.get("tags", ()),
                security=security,
            ),
        )
        self._connection: Producer | None = None

    # ---- lifecycle ----

    async def _connect(self) -> Producer:
        config = cast("RocketMQBrokerConfig", self.config.broker_config)
        producer = Producer(config.group, options=config.producer_options, client=config.client)
        await producer.start()
        fast = cast("RocketMQFastProducer", config.producer)
        fast.connect(producer, config.fd_config._serializer, config.broker_codec)
        return producer

    async def start(self) -> None:
        """Brokers that are not reached yet are tried again. ConfigError: a name or a filter is invalid."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Wait for running handlers, then for messages in flight. It may be started again."""
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            await cast("RocketMQFastProducer", self.config.producer).disconnect()
            self._connection = None

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a broker answers within `timeout` (3 s)."""
        if self._connection is None:
            return False
        instance = self._connection.instance
        try:
            async with asyncio.timeout(3.0 if timeout is None else timeout):
                while True:
                    try:
                        await instance.routes.refresh(SELF_TEST_TOPIC)
                        if await instance.heartbeat_all():
                            return True
                    except ClientError:
                        pass
                    await asyncio.sleep(PING_PAUSE_S)
        except TimeoutError:
            return False

    # ---- publishing ----

    async def publish(
        self,
        message: SendableMessage,
        topic: str,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[MessageOptions],
    ) -> SendResult:
        """Send a message. Headers become properties. MessageRefused, and the other errors of Producer.send."""
        check_known(options, MessageOptions)
        cmd = self._command(message, topic, headers, correlation_id, options, reply_to=reply_to)
        return cast("SendResult", await self._basic_publish(cmd, producer=self.config.producer))

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: SendableMessage,
        topic: str,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **options: Unpack[MessageOptions],
    ) -> list[SendResult]:
        """Send messages in as few requests as possible: one result for each. Batches cannot be delayed."""
        check_known(options, MessageOptions)
        if not messages:
            return []
        cmd = self._command(messages[0], topic, headers, correlation_id, options, reply_to=reply_to)
        cmd.extra_bodies = messages[1:]
        results = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return cast("list[SendResult]", results)

    async def request(  # type: ignore[override]
        self,
        message: SendableMessage,
        topic: str,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        **options: Unpack[MessageOptions],
    ) -> RocketMQMessage:
        """Send a request and wait for the reply of a subscriber, in Python, Java or Go. TimeoutError."""
        check_known(options, MessageOptions)
        cmd = self._command(message, topic, headers, correlation_id, options, timeout=timeout)
        cmd.publish_type = PublishType.REQUEST
        return cast("RocketMQMessage", await self._basic_request(cmd, producer=self.config.producer))

    def _command(
        self,
        message: SendableMessage,
        topic: str,
        headers: Mapping[str, Any] | None,
        correlation_id: str | None,
        options: MessageOptions,
        **more: Any,
    ) -> RocketMQPublishCommand:
        return RocketMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            options=options,
            _publish_type=PublishType.PUBLISH,
            **more,
        )


def _name_servers(name_server: str | Iterable[str] | None, client: ClientOptions | None) -> list[str]:
    if name_server is None:
        name_server = (client and client.name_server) or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER
    addresses = name_server.split(";") if isinstance(name_server, str) else name_server
    return [address.strip() for address in addresses if address.strip()]
