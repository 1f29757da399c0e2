"""NameServer: the tables and handlers of one name server, and its scan for silent brokers.

A broker's process contains one unless it is switched off; `firearrow namesrv` runs one alone. Opens no port,
writes no file. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.handlers.namesrv_admin import KvHandler, NamingAdminHandler
from firearrow.broker.handlers.namesrv_register import RegistrationHandler
from firearrow.broker.handlers.namesrv_routes import NamingHandler
from firearrow.broker.net.dispatch import Instead
from firearrow.broker.services.registration import Connect
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import MinBrokerChange, RouteTable

log = logging.getLogger("firearrow.routes")

NOTIFY_S = 3.0
NOTIFYING_MAX = 64
"""Brokers that are notified at the same time of a change among them; the others find out by asking each second."""


class NameServer:
    """`kv_changed()` is called when `kv` has to be written to its file (`kvConfig.json`). `connect` opens a connection
    to a broker."""

    def __init__(
        self, clock: Clock, options: NamingOptions, kv_changed: Callable[[], None], connect: Connect
    ) -> None:
        self.options = options
        self.routes = RouteTable(clock, self._min_changed)
        self.kv = KvTable(kv_changed)
        self._naming = NamingHandler(self.routes, self.kv, options, clock)
        self._connect = connect
        self._notifying: set[asyncio.Task[None]] = set()
        self._scan: asyncio.TimerHandle | None = None

    def handlers(self) -> list[Routes]:
        """Request codes of a name server, for a `Dispatch`."""
        return [
            self._naming.routes(),
            NamingAdminHandler(self.routes, self.options).routes(),
            RegistrationHandler(self.routes, self.kv, self.options).routes(),
            KvHandler(self.kv).routes(),
        ]

    def instead(self) -> dict[int, Instead]:
        """Answers to requests that a user may not make, for a `Dispatch`."""
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._naming.route_to_broker}

    def describe(self, address: Address, kv_file: Path | None) -> None:
        """Set the options that clients ask for: where this name server listens and keeps its KV entries."""
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
        for task in self._notifying:
            task.cancel()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self.routes.expire()
        self.start(loop)

    def _min_changed(self, change: MinBrokerChange) -> None:
        if not self.options.flag("notifyMinBrokerIdChanged"):
            return
        for address in change.notify[: NOTIFYING_MAX - len(self._notifying)]:
            task = asyncio.ensure_future(self._notify(address, change))
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)

    async def _notify(self, address: str, change: MinBrokerChange) -> None:
        """Notify one broker (NOTIFY_MIN_BROKER_ID_CHANGE), on a connection of its own, as Apache does."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(NOTIFY_S):
                peer = await self._connect(host.strip("[]"), int(port))
                request = RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, change.ext())
                answer = await peer.ask(request, NOTIFY_S)
                peer.close()
        except (OSError, ValueError) as error:
            return log.info("%s was not notified of the smallest broker id: %s", address, error)
        log.info(
            "%s was notified that %d is the smallest broker id: %d", address, change.broker_id, answer.code
        )
