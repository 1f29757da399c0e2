"""Requests of our own for what an operator sees: GET_STATUS (30008), GET_HISTORY (30009), GET_LOG (30022).

Apache's broker does not have them and answers REQUEST_CODE_NOT_SUPPORTED. Loop thread.
"""

import logging
from collections.abc import Awaitable, Callable

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.log_output import LogLine, kept_lines
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.paging import limit_of

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
        return {
            RequestCode.GET_STATUS: self.status,
            RequestCode.GET_HISTORY: self.history,
            RequestCode.GET_LOG: self.log,
        }

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

    async def log(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The last `limit` lines after the number `after`, of at least this `level`, oldest first."""
        after, limit = request.integer_or("after", 0), limit_of(request)
        name = request.text_or("level", "")
        level = logging.getLevelNamesMapping().get(name, -1) if name else logging.NOTSET
        if level < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"level must be a name such as WARNING, not {name}")
        kept = kept_lines()
        if kept and after > kept[-1].number:  # of the process before
            after = 0
        meant = [line for line in kept if line.number > after and line.level >= level]
        rows = list(map(_log_row, meant[-limit:]))
        return request.answer(body=orjson.dumps({"lines": rows, "more": len(meant) > limit}))


def _log_row(line: LogLine) -> dict[str, object]:
    text = line.text.encode("utf-8", "replace").decode()  # no half of a pair, which JSON cannot have
    level = logging.getLevelName(line.level)
    return {"number": line.number, "atMs": line.at_ms, "level": level, "logger": line.logger, "text": text}
