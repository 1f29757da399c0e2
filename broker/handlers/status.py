"""Requests of our own for what an operator sees: GET_STATUS (30008) and GET_HISTORY (30009). Loop thread.

Apache's broker does not have them and answers REQUEST_CODE_NOT_SUPPORTED.
"""

from collections.abc import Awaitable, Callable

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes

HOUR_MS = 3_600_000
LATEST_MS = 1 << 62


class StatusHandler:
    """`status()` and `history(from, to, prefix)` return JSON; the latter raises ValueError for what it refuses."""

    def __init__(
        self,
        clock: Clock,
        status: Callable[[], Awaitable[bytes]],
        history: Callable[[int, int, str], Awaitable[bytes]],
    ) -> None:
        self._clock = clock
        self._status = status
        self._history = history

    def routes(self) -> Routes:
        return {RequestCode.GET_STATUS: self.status, RequestCode.GET_HISTORY: self.history}

    async def status(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=await self._status())

    async def history(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """From `from` to `to` in ms, by default the last hour; `series`: how the names of the series begin."""
        last_ms = request.integer_or("to", self._clock.now_ms())
        first_ms = request.integer_or("from", last_ms - HOUR_MS)
        if not 0 <= first_ms <= last_ms <= LATEST_MS:
            remark = f"from and to must be times in ms, from before to, not {first_ms} and {last_ms}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        try:
            body = await self._history(first_ms, last_ms, request.text_or("series", ""))
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        return request.answer(body=body)
