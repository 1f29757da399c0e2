"""Each async test has a broker object of FastStream, with topics and groups of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from firearrow.client.integrations.faststream import RocketMQBroker
from firearrow.client.integrations.faststream import subscriber as subscribers
from tests.client.conftest import feeder, name_server, short_waits, topics, unique
from tests.interop.peer_fixture import peer
from tests.support.async_tests import pytest_pyfunc_call

__all__ = ["feeder", "name_server", "peer", "pytest_pyfunc_call", "short_waits", "topics"]


@pytest.fixture(autouse=True)
def short_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber stops sooner."""
    monkeypatch.setattr(subscribers, "WAIT_S", 0.2)
    monkeypatch.setattr(subscribers, "FAILED_PAUSE_S", 0.1)


@pytest.fixture
def broker(name_server: str) -> RocketMQBroker:
    return RocketMQBroker(name_server, group=unique("app"), logger=None)


@asynccontextmanager
async def started(broker: RocketMQBroker) -> AsyncIterator[RocketMQBroker]:
    """The broker runs within the block."""
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()
