"""Pytest fixtures for tests of services that use RocketMQ; pytest finds them once FireArrow is installed.

`firearrow_broker` is one real broker for the whole session, ready in half a second, on free ports with a
temporary store. `firearrow_fresh_broker` is a broker for a single test, which may stop, kill and restart it.
"""

from collections.abc import Iterator

import pytest

from firearrow.client.local_broker import LocalBroker


@pytest.fixture(scope="session")
def firearrow_broker() -> Iterator[LocalBroker]:
    """Pass `firearrow_broker.name_server` to clients."""
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker


@pytest.fixture
def firearrow_fresh_broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker
