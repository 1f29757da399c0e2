"""A harness with a poller, on each kind of loop."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tests.support.poller_harness import PollerHarness

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = LOOPS[request.param]()
    yield loop
    loop.close()


@pytest.fixture
def harness(loop: asyncio.AbstractEventLoop) -> Iterator[PollerHarness]:
    harness = PollerHarness(loop)
    yield harness
    for peer in harness.peers:
        peer.close()
    harness.iterate(20)
    harness.engine.close()
