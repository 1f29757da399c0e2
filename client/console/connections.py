"""Connections of visitors: HTTP/1.1 by uvicorn, bounded in number and in their time without a request. Loop thread."""

import asyncio
import inspect
from collections import Counter
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX = 200
HEAD_S = 15.0
"""Until the head of a first request must be there."""

KEEP_ALIVE_S = 20
HEAD_BYTES_MAX = 32 << 10
STOP_S = 2


def configured(app: ASGIApp, certificate: str | None, key: str | None) -> uvicorn.Config:
    """Its server. Debian 12 has an older uvicorn, which does not know all options."""
    newer: dict[str, Any] = {
        "timeout_graceful_shutdown": STOP_S,
        "h11_max_incomplete_event_size": HEAD_BYTES_MAX,
    }
    known = inspect.signature(uvicorn.Config).parameters
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        loop="none",
        http=Connection,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        **{name: value for name, value in newer.items() if name in known},
    )


class Connection(H11Protocol):
    """One connection. uvicorn would keep one that sends nothing for ever, and refuse all requests once there are many;
    here the oldest idle one is closed, of the address that has most of them."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 (uvicorn's own)
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle = self.loop.call_later(HEAD_S, self._close_idle)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_place()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """No request is answered: there is none, or its body is not there yet."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _close_idle(self) -> None:
        is_open = self.transport is not None  # asyncio ends handshakes of TLS by itself
        if is_open and self.cycle is None:
            self.transport.abort()

    def _make_place(self) -> None:
        """Those that are closing are still listed until the loop's next pass."""
        others: list[Any] = [
            each for each in self.connections if each is not self and not each.transport.is_closing()
        ]
        if len(others) < CONNECTIONS_MAX:
            return
        idle = [each for each in others if each.is_idle]
        if not idle:
            self.transport.abort()
            return
        counts = Counter(each.client and each.client[0] for each in idle)
        most = max(counts.values())
        worst = [each for each in idle if counts[each.client and each.client[0]] == most]
        min(worst, key=lambda each: each._deadline.when()).transport.abort()
