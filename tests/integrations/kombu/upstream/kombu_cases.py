"""kombu's own integration tests of a transport (`t/integration/common.py`), with connections of this one.

A queue has one queue of RocketMQ here, as the tests expect messages in the order in which they were sent.
"""

import contextlib
import os
from typing import Any

import kombu
import pytest
from kombu.simple import SimpleBase
from t.integration.common import (
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

URL, DEAD = os.environ["TEST_BROKER"], "rocketmq://127.0.0.1:1"
OPTIONS = {"queues": 1}
AGAIN_S = 10
"""How long a test waits for a message that was given back: brokers make it visible, they do not keep it at hand."""


class DrainsAll(kombu.Connection):
    """`drain_events` delivers all that comes soon. Virtual transports deliver one message, py-amqp what it has read."""

    def drain_events(self, **kwargs: Any) -> None:
        super().drain_events(**kwargs)
        with contextlib.suppress(TimeoutError):
            while True:
                super().drain_events(timeout=0.5)


@pytest.fixture
def connection() -> kombu.Connection:
    return kombu.Connection(URL, transport_options=OPTIONS)


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(DEAD, connect_timeout=1)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    return kombu.Connection(f"{DEAD};{URL}", connect_timeout=1, transport_options=OPTIONS)


class TestBasicFunctionality(BasicFunctionality):
    """As kombu has them."""


class TestExchangeTypes(BaseExchangeTypes):
    """As kombu has them."""


class TestTimeToLive(BaseTimeToLive):
    """As kombu has them."""


class TestPriority(BasePriority):
    """The highest number comes first, as with RabbitMQ."""

    @pytest.fixture
    def connection(self) -> kombu.Connection:
        return DrainsAll(URL, transport_options=OPTIONS)


class TestMessage(BaseMessage):
    """As kombu has them."""

    @pytest.fixture(autouse=True)
    def waits(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.node.name in ("test_requeue", "test_reject_requeue"):
            monkeypatch.setattr(SimpleBase, "get_nowait", lambda queue: queue.get(timeout=AGAIN_S))


class TestEventLoop(BaseEventLoop):
    """As kombu has them."""


class TestFailover(BaseFailover):
    """Alternatives of a URL are the name servers of one cluster."""
