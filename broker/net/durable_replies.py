"""Durable: requests that change a table are answered when its file is written, as by Apache's broker. Loop thread."""

import asyncio
from collections.abc import Awaitable

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
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
    )
)

UNSAVED = (
    "the change is in force, but the broker's config files cannot be written and it would be lost with the process: "
    "make room on the broker's disk and ask again; the broker's log has the reason"
)


def reply_when_saved(routes: Routes, saver: TableSaver) -> Routes:
    """The same handlers, but that those of `CHANGE_CODES` answer behind the saver."""
    return {
        code: _reply_after_save(handler, saver) if code in CHANGE_CODES else handler
        for code, handler in routes.items()
    }


def _reply_after_save(handler: Handler, saver: TableSaver) -> Handler:
    """Answers leave in the order of the requests: each is a future that was made when its request was handled."""

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
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
    later: asyncio.Future[RemotingCommand | None] = saved.get_loop().create_future()

    def give(_: asyncio.Future[bool]) -> None:
        if not later.done():
            later.set_result(_unless_unsaved(answer, saved))

    saved.add_done_callback(give)
    return later


async def _send_when_saved(
    answer: Awaitable[RemotingCommand | None], saved: asyncio.Future[bool]
) -> RemotingCommand | None:
    given = await answer
    await saved
    return _unless_unsaved(given, saved)


def _unless_unsaved(answer: RemotingCommand | None, saved: asyncio.Future[bool]) -> RemotingCommand | None:
    """The answer, or what is to be said when the change holds in memory alone."""
    if answer is None or answer.code != ResponseCode.SUCCESS or saved.result():
        return answer
    return answer.answer(ResponseCode.SYSTEM_ERROR, UNSAVED)
