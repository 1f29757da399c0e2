"""Delays answers to requests that change a table until its file is written, as Apache does. Loop thread."""

import asyncio
from collections.abc import Awaitable

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Handler, Peer, Routes
from firearrow.broker.services.table_saver import TableSaver

CHANGE_CODES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.UPDATE_QUOTA,
    )
)

UNSAVED = (
    "the change is in effect, but the server cannot write its config files and would lose it at a restart: "
    "free disk space there and send the request again; the server's log has the reason"
)


def reply_when_saved(routes: Routes, saver: TableSaver) -> Routes:
    """The same handlers; those of `CHANGE_CODES` answer after the table saver has written their changes, and change
    nothing if it writes no more."""
    return {
        code: _reply_after_save(handler, saver) if code in CHANGE_CODES else handler
        for code, handler in routes.items()
    }


def _reply_after_save(handler: Handler, saver: TableSaver) -> Handler:
    """Answers keep the order of their requests: each is a future created when its request is handled."""

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
        if (ended := saver.ended()) is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"nothing was changed, as {ended}")
        answer = handler(request, peer)
        saver.retry_failed()
        if not saver.busy:
            return answer
        saved = saver.saved()
        if answer is None or isinstance(answer, RemotingCommand):
            return _when_saved(saved, answer)
        return _send_when_saved(answer, saved)

    return handle


def _when_saved(
    saved: asyncio.Future[bool], answer: RemotingCommand | None
) -> "asyncio.Future[RemotingCommand | None]":
    delayed: asyncio.Future[RemotingCommand | None] = saved.get_loop().create_future()

    def finish(_: asyncio.Future[bool]) -> None:
        if not delayed.done():
            delayed.set_result(_unless_unsaved(answer, saved))

    saved.add_done_callback(finish)
    return delayed


async def _send_when_saved(
    answer: Awaitable[RemotingCommand | None], saved: asyncio.Future[bool]
) -> RemotingCommand | None:
    result = await answer
    await saved
    return _unless_unsaved(result, saved)


def _unless_unsaved(answer: RemotingCommand | None, saved: asyncio.Future[bool]) -> RemotingCommand | None:
    """The answer, or an error if the change is in memory only."""
    if answer is None or answer.code != ResponseCode.SUCCESS or saved.result():
        return answer
    return answer.answer(ResponseCode.SYSTEM_ERROR, UNSAVED)
