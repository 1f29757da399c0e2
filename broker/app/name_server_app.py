"""NameServerApp: the process of `firearrow namesrv`, a name server alone. A composition root.

Stops in the opposite order of its start: the scan, the connections, the file. Loop thread.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from firearrow.broker.app.name_server import NameServer
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.log_output import announce
from firearrow.broker.base.peer import Address
from firearrow.broker.base.process import seconds_since_start, stop_on_signals
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.server import Server
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions

log = logging.getLogger("firearrow.app")

STOP_S = 1.0
IDLE_S = 120
FRAME_BYTES_MAX = 16 << 20


class NameServerApp:
    """KV entries are kept in `~/firearrow/namesrv/kvConfig.json`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listen: Address) -> None:
        self._loop = loop
        self._listen = listen

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. StartError when it cannot."""
        async with AsyncExitStack() as running:
            saver, stopping = TableSaver(self._loop), asyncio.Event()
            naming = NameServer(Clock(), NamingOptions(), lambda: saver.schedule("kv"))
            kv_file = self._keep_kv(naming.kv, saver)
            running.callback(saver.stop)
            server = Server(self._loop, idle_s=IDLE_S, frame_bytes_max=FRAME_BYTES_MAX)
            running.push_async_callback(server.close, STOP_S)
            host, port = await server.listen(*self._listen, Dispatch(naming.handlers()))
            naming.describe((host, port), kv_file)
            naming.start(self._loop)
            running.callback(naming.stop)
            stop_on_signals(self._loop, stopping)
            announce(f"firearrow ready: name server {host}:{port}, {seconds_since_start():.2f} s")
            await stopping.wait()

    def _keep_kv(self, kv: KvTable, saver: TableSaver) -> Path | None:
        """Load the KV entries from their file, and save them there after changes; returns its path."""
        try:
            folder = Path.home() / "firearrow" / "namesrv"
        except RuntimeError:
            log.warning(
                "KV entries are lost when the name server stops, as there is no home folder: set HOME"
            )
            saver.add("kv", lambda: None)
            return None
        file = ConfigFile(folder / "kvConfig.json")
        file.load(kv.load)
        saver.add("kv", lambda: file.write(kv.to_json()))
        return file.path
