"""GET_MACHINE (30012), a request of FireArrow: what only the broker's machine can report, for `firearrow doctor`.

Disks, the time of an fsync, open files, limits of its cgroups, addresses, the clock, the last backup; and of the broker
itself the groups whose members subscribe differently. The disk is asked in a thread: it may not answer for minutes.
"""

import asyncio
import os
import socket
import sys
from typing import Any

import orjson

from firearrow._native.base import last_backup, machine
from firearrow._native.base.command_line import version
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import tls
from firearrow.broker.base.config import tls_pairs
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext

MEASURED_EVERY_MS = 10_000
"""The disk is measured at most so often, however many ask."""
WAIT_S = 3.0
"""Then the answer goes without what the disk has not reported."""
DIFFERENCES_MAX = 100
CPU_PERIODS_MIN = 50
"""Of a tenth of a second each: over fewer the share of those in which the broker was stopped says little."""
CLIENTS_SHOWN_MAX = 10


class MachineHandler:
    """`listen`: the addresses that the broker listens on."""

    def __init__(self, listen: tuple[Address, ...], context: BrokerContext) -> None:
        self._listen = listen
        self._clients = context.tables.clients
        self._config, self._clock, self._stats = context.config, context.clock, context.stats
        self._version = version(sys.path)  # later there may be no descriptor for a look
        self._cpu_before: tuple[float, float] = (0, 0)
        self._throttled: float | None = None
        self._measured: dict[str, Any] = {}
        self._measured_ms = 0
        self._measuring: asyncio.Future[dict[str, Any]] | None = None

    def routes(self) -> Routes:
        return {RequestCode.GET_MACHINE: self.machine}

    async def machine(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        disks = await self._disks()
        options = self._config.options
        facts = {
            "version": self._version,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "nowMs": self._clock.now_ms(),
            "startedMs": self._stats.started_ms,
            "listen": [_address(*each) for each in self._listen],
            "advertised": options.broker_ip and _address(options.broker_ip, options.client_port),
            "files": machine.open_files(),
            "systemFiles": machine.system_files(),
            "mappings": machine.mappings(),
            "tasks": machine.tasks(),
            "cpu": self._cpu(),
            "memory": machine.memory() | {"anonymous": machine.anonymous_bytes()},
            "flush": {"mode": options.flush_disk_type, "intervalMs": options.flush_interval_ms},
            "segmentBytes": options.segment_bytes,
            "differences": self._differences(),
        }
        return request.answer(body=orjson.dumps(facts | disks))

    def _cpu(self) -> dict[str, float | None]:
        """`throttledShare`: of the periods since the last answer, or since the start."""
        found = machine.cpu()
        periods, throttled = found["periods"] or 0, found["throttled"] or 0
        passed, stopped = periods - self._cpu_before[0], throttled - self._cpu_before[1]
        if passed >= CPU_PERIODS_MIN:
            self._cpu_before, self._throttled = (periods, throttled), stopped / passed
        return {"limit": found["limit"], "throttledShare": self._throttled if found["limit"] else None}

    async def _disks(self) -> dict[str, Any]:
        """What `_measure` found, now or before; all None while the disk does not answer."""
        now = self._clock.monotonic_ms()
        if self._measuring is None and (not self._measured or now - self._measured_ms >= MEASURED_EVERY_MS):
            loop = asyncio.get_running_loop()
            self._measured_ms = now
            self._measuring = loop.run_in_executor(None, _measure, self._config.options)
            self._measuring.add_done_callback(self._keep)
        if self._measuring is not None:
            await asyncio.wait([self._measuring], timeout=WAIT_S)
        if self._measuring is not None:  # the disk has not answered yet
            return self._measured | {
                "syncMs": None,
                "syncWaitedMs": self._clock.monotonic_ms() - self._measured_ms,
            }
        return self._measured

    def _keep(self, measured: asyncio.Future[dict[str, Any]]) -> None:
        self._measuring = None
        if not measured.cancelled():
            self._measured = measured.result()

    def _differences(self) -> list[dict[str, Any]]:
        return [
            {
                "group": group,
                "members": [
                    {"subscribed": text, "clients": clients[:CLIENTS_SHOWN_MAX], "count": len(clients)}
                    for text, clients in kinds
                ],
            }
            for group, kinds in list(self._clients.differences().items())[:DIFFERENCES_MAX]
        ]


def _measure(options: Options) -> dict[str, Any]:
    """In a thread."""
    root = options.store_root
    found: dict[str, Any] = {"syncMs": None, "syncFault": None, "syncWaitedMs": None}
    log = options.commitlog_path or os.path.join(root, "commitlog")
    for name, folder in (("store", root), ("log", log)):
        try:
            found[name] = machine.disk(folder)
        except OSError as error:
            found[name], found["syncFault"] = None, f"{folder}: {error.strerror}"
    try:
        found["syncMs"] = machine.sync_ms(root)
    except OSError as error:
        found["syncFault"] = f"{root}: {error.strerror}"
    found["certificates"] = _certificates(options)
    backup = last_backup.read(root)
    found["lastBackup"] = (
        None
        if backup is None
        else {"madeMs": backup.made_ms, "target": backup.target, "logEnd": backup.log_end}
    )
    return found


def _certificates(options: Options) -> list[dict[str, Any]]:
    """Those that clients do not see in a handshake: of the broker's own connections, and of authorities."""
    settings = tls.settings_of(tls_pairs(options))
    paths = settings.server.authorities, settings.client.certificate, settings.client.authorities
    return [
        {"path": path, "beginsMs": round(1000 * found.begins_s), "endsMs": round(1000 * found.ends_s)}
        for path in dict.fromkeys(paths)
        if path and (found := tls.validity(path)) is not None
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
