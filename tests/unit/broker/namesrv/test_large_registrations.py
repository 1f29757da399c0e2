"""Registrations of many topics: parsed in a thread, few at a time, void if the broker disconnects during that."""

import asyncio
import threading

import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.handlers import namesrv_register as handler
from firearrow.broker.tables import registration
from tests.support.name_server_harness import HERE, NameServerHarness, config, register_body, register_request
from tests.support.peers import RecordedPeer


def large() -> RemotingCommand:
    body = register_body(*(config(f"T{n}") for n in range(2000)))
    assert len(body) > handler.INLINE_BYTES
    return register_request(body=body)


def test_it_takes_effect_and_the_loop_is_not_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = NameServerHarness()
    go_on = threading.Event()
    read = registration.register_body

    def held(body: bytes, client_version: int, compressed: bool) -> registration.RegisterBody:
        assert go_on.wait(10)
        return read(body, client_version, compressed)

    monkeypatch.setattr(handler, "register_body", held)

    async def main() -> None:
        peer = RecordedPeer(local=HERE)
        for _ in range(handler.READING_MAX):
            harness.dispatch(large(), peer)
        await asyncio.sleep(0)
        refusing = RecordedPeer(local=HERE)
        harness.dispatch(large(), refusing)
        for _ in range(3):  # the handler, then the response
            await asyncio.sleep(0)
        assert [answer.code for answer in refusing.replies] == [ResponseCode.SYSTEM_BUSY]
        assert harness.route("T1999") is None
        go_on.set()
        await harness.dispatch.drain()
        assert [answer.code for answer in peer.replies] == [0] * handler.READING_MAX
        assert harness.route("T1999") is not None

    asyncio.run(main())


def test_a_broker_that_disconnects_is_not_registered() -> None:
    harness = NameServerHarness()

    async def main() -> None:
        peer = RecordedPeer(local=HERE)
        harness.dispatch(large(), peer)
        peer.close()
        await harness.dispatch.drain()

    asyncio.run(main())
    assert not harness.routes.brokers


def test_a_wrong_large_body_is_refused_by_name() -> None:
    harness = NameServerHarness()
    body = register_body(*(config(f"T{n}", perm=99) for n in range(2000)))
    answer = asyncio.run(harness.ask_and_wait(register_request(body=body)))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "perm" in answer.remark
