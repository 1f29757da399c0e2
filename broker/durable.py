"""Durable: requests that change a table are answered when its file is written, as by Apache's broker. Loop thread."""

import asyncio

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.peer import Answer, Handler, Peer, Routes
from firearrow.broker.services.saver import Saver

CHANGES = frozenset(
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


def durable(routes: Routes, saver: Saver) -> Routes:
    """The same handlers, but that those of `CHANGES` answer behind the saver."""
    return {code: _behind(handler, saver) if code in CHANGES else handler for code, handler in routes.items()}


def _behind(handler: Handler, saver: Saver) -> Handler:
    async def later(answer: Answer, saved: asyncio.Future[None]) -> RemotingCommand | None:
        given = answer if answer is None or isinstance(answer, RemotingCommand) else await answer
        await saved
        return given

    def handle(request: RemotingCommand, peer: Peer) -> Answer:
        answer = handler(request, peer)
        return later(answer, saver.saved()) if saver.busy else answer

    return handle
