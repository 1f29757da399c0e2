"""Fixtures for tests of services that use RocketMQ; pytest finds them by itself once FireArrow is installed.

`firearrow_broker` is one real broker for the whole run, ready in half a second, on free ports with a temporary store.
`firearrow_fresh_broker` is one for a single test, to be stopped, killed and started again as the test likes.
"""

from collections.abc import Iterator

import pytest

from firearrow.client.local_broker import LocalBroker


@pytest.fixture(scope="session")
def firearrow_broker() -> Iterator[LocalBroker]:
    """`firearrow_broker.name_server` is what a client needs to know."""
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker


@pytest.fixture
def firearrow_fresh_broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings={"autoCreateTopicEnable": "true"}) as broker:
        yield broker
