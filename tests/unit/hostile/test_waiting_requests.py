"""Held requests, and requests in progress, are bounded in number and in bytes."""

import asyncio

import pytest

from firearrow._native.fastpath.long_polling import (
    BYTES_MAX,
    REQUEST_BYTES,
    HeldCallback,
    PullHoldService,
    weight_without_body,
)
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess, Peer
from firearrow.broker.handlers.pull import TAG_BYTES, PullHandler, PullRequest
from firearrow.broker.net import dispatch
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.pop.long_polling import HeldPop, PopHoldService
from firearrow.broker.tables.subscription_filter import EntryFilter
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer
from tests.support.requests import pull_ext


def worked_on(count: int, body: bytes = b"") -> list[int]:
    """Codes of the responses to `count` requests whose handler waits until all of them are there."""

    async def run() -> list[int]:
        peer, table, go_on = RecordedPeer(), Dispatch(), asyncio.Event()

        async def waiting(request: RemotingCommand, peer: Peer) -> RemotingCommand:
            await go_on.wait()
            return request.answer()

        table.add([{7: waiting}])
        for opaque in range(count):
            table(RemotingCommand(7, {}, body, opaque=opaque), peer)
        go_on.set()
        await table.drain()
        await asyncio.sleep(0)
        return [answer.code for answer in peer.replies]

    return asyncio.run(run())


def test_requests_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "RUNNING_MAX", 3)
    assert worked_on(3) == [0, 0, 0]
    assert worked_on(4) == [ResponseCode.SYSTEM_BUSY, 0, 0, 0]


def test_bytes_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "REQUEST_BYTES_MAX", 300)
    assert worked_on(3, bytes(100)) == [0, 0, 0]
    assert worked_on(4, bytes(100)) == [ResponseCode.SYSTEM_BUSY, 0, 0, 0]


def test_a_waiting_request_keeps_no_body() -> None:
    request = RemotingCommand(11, {"topic": "T" * 100}, bytes(1 << 20))
    assert weight_without_body(request) == REQUEST_BYTES + 105
    assert request.body == b""


@pytest.mark.parametrize("over", [0, 1])
def test_bytes_of_held_pulls(over: int) -> None:
    async def run() -> bool:
        waiting = PullHoldService(asyncio.get_running_loop(), ManualClock(), 10)
        peer = RecordedPeer()
        assert waiting.add(HeldCallback(("T", 0), peer, 0, lambda: False, lambda: None, BYTES_MAX - 100))
        fits = waiting.add(HeldCallback(("T", 0), peer, 0, lambda: False, lambda: None, 100 + over))
        waiting.release_all()
        assert waiting.add(HeldCallback(("T", 0), peer, 0, lambda: False, lambda: None, BYTES_MAX))
        waiting.release_all()
        return fits

    assert asyncio.run(run()) is not bool(over)


@pytest.mark.parametrize("over", [0, 1])
def test_bytes_of_held_pops(over: int) -> None:
    async def run() -> bool:
        waiting = PopHoldService(asyncio.get_running_loop(), ManualClock(), lambda: 10, lambda: 10)
        waiting.bytes_max = 1000
        peer, key = RecordedPeer(), ("T", "G", 0)
        assert waiting.add(HeldPop(key, peer, 0, lambda final: None, 900))
        fits = waiting.add(HeldPop(key, peer, 0, lambda final: None, 100 + over))
        waiting.release_all()
        assert waiting.add(HeldPop(key, peer, 0, lambda final: None, 1000))
        waiting.release_all()
        return fits

    assert asyncio.run(run()) is not bool(over)


class Scales:
    """Replaces the PullHoldService: takes held pulls, and weighs them."""

    weight = 0

    def add(self, held: HeldCallback) -> bool:
        self.weight += held.weight
        return True


@pytest.mark.parametrize("tags", [0, 5000])
def test_the_weight_of_a_held_pull_includes_its_tags(tags: int) -> None:
    """The hashes of its tags are stored with the request."""
    handler = PullHandler.__new__(PullHandler)  # holding needs four of its members
    scales = handler._hold_service = Scales()  # type: ignore[assignment]
    handler._config, handler._clock, handler._access = Config(Options()), ManualClock(), HeldAccess()
    request = RemotingCommand(11, pull_ext("T"))
    selection = EntryFilter(frozenset(range(tags)) or None, None)
    assert handler._hold(request, RecordedPeer(), PullRequest.of(request), selection)
    assert scales.weight == weight_without_body(request) + tags * TAG_BYTES
