"""The name server: its handlers, and the process that runs it alone. A composition root; no logic of its own."""

import asyncio
from pathlib import Path

from firearrow.broker.clock import SystemClock
from firearrow.broker.dispatch import Dispatch
from firearrow.broker.handlers.kv import KvHandler
from firearrow.broker.handlers.naming import NamingHandler
from firearrow.broker.handlers.naming_admin import NamingAdminHandler
from firearrow.broker.handlers.registration import RegistrationHandler
from firearrow.broker.peer import Address, Routes
from firearrow.broker.process import seconds_since_start, stop_on_signals
from firearrow.broker.server import Server
from firearrow.broker.services.periodic import Periodic
from firearrow.broker.services.saver import Saver
from firearrow.broker.tables.files import ConfigFile
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.routes import RouteTable

ROUTES_SWEEP_S = 5
STOP_S = 1.0
IDLE_S = 120
FRAME_BYTES_MAX = 16 << 20


class NameServerApp:
    """The name server alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listen: Address) -> None:
        self._loop = loop
        self._listen = listen

    async def run(self) -> None:
        clock = SystemClock()
        saver, stopping, server = (
            Saver(self._loop),
            asyncio.Event(),
            Server(self._loop, idle_s=IDLE_S, frame_bytes_max=FRAME_BYTES_MAX),
        )
        file = ConfigFile(Path.home() / "firearrow" / "namesrv" / "kvConfig.json")
        kv = KvTable(lambda: saver.soon("kv"))
        file.load(kv.load)
        saver.add("kv", lambda: file.write(kv.to_json()))
        routes = RouteTable(clock)
        periodic = Periodic(self._loop)
        periodic.every(ROUTES_SWEEP_S, routes.expire)
        try:
            naming = naming_routes(routes, kv, NamingOptions(), clock)
            host, port = await server.listen(*self._listen, Dispatch(naming))
            stop_on_signals(self._loop, stopping)
            print(f"firearrow ready: name server {host}:{port}, {seconds_since_start():.2f} s", flush=True)
            await stopping.wait()
        finally:
            periodic.stop()
            await server.close(STOP_S)
            saver.stop()


def naming_routes(
    routes: RouteTable, kv: KvTable, options: NamingOptions, clock: SystemClock
) -> list[Routes]:
    handlers = (
        NamingHandler(routes, kv, options, clock),
        RegistrationHandler(routes, kv, options),
        NamingAdminHandler(routes, options),
        KvHandler(kv),
    )
    return [handler.routes() for handler in handlers]
