"""Rooms with an engine, on both kinds of loop."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tests.wire.engine_room import Room

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
def room(loop: asyncio.AbstractEventLoop) -> Iterator[Room]:
    room = Room(loop)
    yield room
    for peer in room.peers:
        peer.close()
    room.turns(20)
    room.engine.close()
