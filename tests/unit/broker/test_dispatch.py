"""Dispatch: whatever a handler does, a request gets exactly one response, and a one-way request none."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Peer
from firearrow.broker.net.dispatch import Dispatch
from tests.support.peers import RecordedPeer


def answered(
    handler: Callable[[RemotingCommand, Peer], Answer], *, oneway: bool = False, code: int = 7
) -> list[RemotingCommand]:
    async def run() -> list[RemotingCommand]:
        peer = RecordedPeer()
        dispatch = Dispatch([{7: handler}])
        dispatch(RemotingCommand(code, opaque=5, flag=2 if oneway else 0), peer)
        await dispatch.drain()
        return peer.replies

    return asyncio.run(run())


def plain(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    return request.answer(body=b"done")


async def later(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    await asyncio.sleep(0)
    return request.answer(body=b"done")


def refusing(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    raise Refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic", {"a": "b"})


async def refusing_later(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    raise Refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic", {"a": "b"})


def missing_field(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    return request.answer(body=request.text("topic").encode())


def broken(request: RemotingCommand, peer: Peer) -> RemotingCommand:
    raise KeyError("oh")


@pytest.mark.parametrize("handler", [plain, later])
def test_a_response_goes_to_the_requester(handler: Callable[[RemotingCommand, Peer], Answer]) -> None:
    (answer,) = answered(handler)
    assert (answer.code, answer.opaque, answer.body, answer.is_response) == (0, 5, b"done", True)


@pytest.mark.parametrize("handler", [refusing, refusing_later])
def test_a_refusal_is_answered_with_its_code(handler: Callable[[RemotingCommand, Peer], Answer]) -> None:
    (answer,) = answered(handler)
    assert (answer.code, answer.remark, answer.ext) == (17, "no such topic", {"a": "b"})


def test_a_missing_field_is_named() -> None:
    (answer,) = answered(missing_field)
    assert (answer.code, answer.remark) == (1, "the field topic is missing")


def test_an_internal_error_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    (answer,) = answered(broken)
    assert (answer.code, answer.remark) == (1, "KeyError: 'oh'")
    assert "request 7" in caplog.text


def test_an_unknown_code_is_refused_with_apaches_remark() -> None:
    (answer,) = answered(plain, code=9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


@pytest.mark.parametrize("handler", [plain, later, refusing, refusing_later, broken])
def test_a_oneway_request_is_never_answered(handler: Callable[[RemotingCommand, Peer], Answer]) -> None:
    assert answered(handler, oneway=True) == []


def test_two_handlers_of_one_code_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two handlers for request code 7"):
        Dispatch([{7: plain}, {7: later}])


def test_a_listener_may_serve_fewer_codes() -> None:
    peer = RecordedPeer()
    dispatch = Dispatch()
    dispatch.add([{7: plain, 8: plain}], without=[7])
    dispatch(RemotingCommand(7), peer)
    dispatch(RemotingCommand(8), peer)
    assert [answer.code for answer in peer.replies] == [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0]
