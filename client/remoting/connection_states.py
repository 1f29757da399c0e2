"""ConnectionStates: which brokers and name servers are not reached, with one line in the log for each change.

A rolling restart is a few lines, however often the connections are tried. Loop thread; any thread may copy `down`.
"""

import asyncio
import logging
from collections.abc import Callable

from firearrow.client.base.reports import ConnectionDown, ConnectionUp, Event, LastError
from firearrow.client.base.service_state import now_ms

log = logging.getLogger("firearrow.client")

LONG_S = 60.0
"""A server that is not reached for so long is not being restarted: it was removed, or it is a warning."""


class ConnectionStates:
    """`is_named(address)`: whether a route or the configuration names this server: others are forgotten."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_named: Callable[[str], bool]) -> None:
        self._loop = loop
        self._is_named = is_named
        self.down: dict[str, int] = {}
        """Address of a server that is not reached → since when, ms since 1970."""
        self._began_s: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.listeners: list[Callable[[Event], None]] = []
        self.last_error = LastError()

    def not_reached(self, address: str, reason: str) -> None:
        """A connection was lost, or none could be opened."""
        self.forget_unnamed()
        if not self._is_named(address):
            return
        self.last_error.set(reason)
        reason = reason.removeprefix(f"{address}: ")
        if address in self.down:
            return
        self.down[address], self._began_s[address] = now_ms(), self._loop.time()
        self._timers[address] = self._loop.call_later(LONG_S, self._still_down, address, reason)
        log.info("not connected to %s, it is tried again: %s", address, reason)
        self._emit(ConnectionDown(address, reason))

    def reached(self, address: str) -> None:
        """A connection is open."""
        if address not in self.down:
            return
        down_s = self._loop.time() - self._began_s[address]
        self._forget(address)
        log.info("connected to %s again, after %.1f s", address, down_s)
        self._emit(ConnectionUp(address, down_s))

    def forget_unnamed(self) -> None:
        """Servers that were removed are not missing. One that restarts may have no route for a moment."""
        before_s = self._loop.time() - LONG_S
        for address, began_s in list(self._began_s.items()):
            if began_s < before_s and not self._is_named(address):
                self._forget(address)

    def close(self) -> None:
        for address in list(self.down):
            self._forget(address)

    def _forget(self, address: str) -> None:
        del self.down[address], self._began_s[address]
        self._timers.pop(address).cancel()

    def _still_down(self, address: str, reason: str) -> None:
        if self._is_named(address):
            log.warning("not connected to %s for %.0f s: is it running? %s", address, LONG_S, reason)

    def _emit(self, event: Event) -> None:
        for listener in list(self.listeners):
            listener(event)
