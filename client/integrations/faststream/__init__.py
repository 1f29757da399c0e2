"""FastStream on RocketMQ: RocketMQBroker, its router, messages and test broker. docs/integrations/FASTSTREAM.md.

- `configs`: options of brokers, subscribers and publishers
- `broker`, `registrator`: RocketMQBroker; `subscriber` and `publisher` of brokers and routers
- `subscriber`, `deliveries`: fetches messages and calls handlers; where messages come from and are acknowledged
- `publisher`, `producer`: publishers, and what encodes and sends
- `message`, `response`: what a handler gets, and what it returns
- `testing`: the broker in memory
- `fastapi`: the router for FastAPI
- `opentelemetry`, `prometheus`: middlewares
"""

from firearrow.client.integrations.faststream.configs import Consumption

# isort: split
from typing import Annotated

from faststream import Context, TestApp

from firearrow.client.integrations.faststream.broker import RocketMQBroker
from firearrow.client.integrations.faststream.message import RocketMQMessage as _Message
from firearrow.client.integrations.faststream.registrator import (
    RocketMQPublisher,
    RocketMQRoute,
    RocketMQRouter,
)
from firearrow.client.integrations.faststream.response import (
    RocketMQPublishCommand,
    RocketMQPublishMessage,
    RocketMQResponse,
)
from firearrow.client.integrations.faststream.testing import TestRocketMQBroker

RocketMQMessage = Annotated[_Message, Context("message")]
"""For a parameter of a handler, which gets the message."""

__all__ = [
    "Consumption",
    "RocketMQBroker",
    "RocketMQMessage",
    "RocketMQPublishCommand",
    "RocketMQPublishMessage",
    "RocketMQPublisher",
    "RocketMQResponse",
    "RocketMQRoute",
    "RocketMQRouter",
    "TestApp",
    "TestRocketMQBroker",
]
__dir__ = __all__.copy
"""What `dir` and shells list."""
