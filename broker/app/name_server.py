"""NameServer: the tables and handlers of one name server, and its scan for silent brokers.

A broker's process contains one unless it is switched off; `firearrow namesrv` runs one alone. Opens no port,
writes no file. Loop thread.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.handlers.namesrv_admin import KvHandler, NamingAdminHandler
from firearrow.broker.handlers.namesrv_register import RegistrationHandler
from firearrow.broker.handlers.namesrv_routes import NamingHandler
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import RouteTable


class NameServer:
    """`kv_changed()` is called when `kv` has to be written to its file (`kvConfig.json`)."""

    def __init__(self, clock: Clock, options: NamingOptions, kv_changed: Callable[[], None]) -> None:
        self.options = options
        self.routes = RouteTable(clock)
        self.kv = KvTable(kv_changed)
        self._clock = clock
        self._scan: asyncio.TimerHandle | None = None

    def handlers(self) -> list[Routes]:
        """Request codes of a name server, for a `Dispatch`."""
        return [
            NamingHandler(self.routes, self.kv, self.options, self._clock).routes(),
            NamingAdminHandler(self.routes, self.options).routes(),
            RegistrationHandler(self.routes, self.kv, self.options).routes(),
            KvHandler(self.kv).routes(),
        ]

    def describe(self, address: Address, kv_file: Path | None) -> None:
        """Tell clients that ask for the options where this name server listens and keeps its KV entries."""
        kv_path = "" if kv_file is None else str(kv_file)
        self.options.describe(
            {"bindAddress": address[0], "listenPort": str(address[1]), "kvConfigPath": kv_path}
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for silent brokers every scanNotActiveBrokerInterval."""
        interval_s = self.options.number("scanNotActiveBrokerInterval") / 1000
        self._scan = loop.call_later(interval_s, self._expire, loop)

    def stop(self) -> None:
        if self._scan is not None:
            self._scan.cancel()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self.routes.expire()
        self.start(loop)
