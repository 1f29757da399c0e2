"""The scan for silent brokers: at its interval, while the name server runs."""

import asyncio
from collections.abc import Callable
from typing import cast

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.name_server_harness import HERE, NameServerHarness
from tests.support.peers import RecordedPeer


class Loop:
    """Keeps the scheduled callbacks."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.cancelled = 0
        self._next: Callable[[], None] = self.cancel

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> "Loop":
        self.delays.append(delay)
        self._next = lambda: callback(*args)
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def run_next(self) -> None:
        self._next()


def test_it_scans_repeatedly_at_the_current_interval() -> None:
    harness = NameServerHarness()
    loop = Loop()
    peer = RecordedPeer(local=HERE)
    harness.register(peer, heartbeatTimeoutMillis=1000)
    harness.server.start(cast(asyncio.AbstractEventLoop, loop))
    loop.run_next()
    assert harness.route("T1") is not None
    harness.ask(RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"scanNotActiveBrokerInterval=700"))
    harness.clock.advance(1001)
    loop.run_next()
    assert harness.route("T1") is None
    assert peer.closed
    assert loop.delays == [5, 5, 0.7]
    harness.server.stop()
    assert loop.cancelled == 1
