"""MetricsServices: builds the metrics, the status, the history and the HTTP listener. Loop thread.

The history is always on; the listener and what only it needs are built if the options ask for it.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import orjson

from firearrow._native.base.command_line import version
from firearrow.broker.app.foundation import Foundation
from firearrow.broker.app.ports import Ports
from firearrow.broker.app.replication import Replication, status_of
from firearrow.broker.app.services import Services
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, is_loopback
from firearrow.broker.base.process import ServiceThread, lower_priority
from firearrow.broker.metrics.history import ROWS, STEP_MS, History
from firearrow.broker.metrics.lags import LagSnapshots
from firearrow.broker.metrics.recorder import Recorder, open_history
from firearrow.broker.metrics.sources import Sources
from firearrow.broker.metrics.status import Status
from firearrow.broker.net.open_ports import LOOPBACK
from firearrow.broker.replication.master import HAService
from firearrow.broker.replication.slave import Slave
from firearrow.broker.services.registration import Registrar

if TYPE_CHECKING:
    from firearrow.broker.http.listener import Bind, HttpListener, Visitor
    from firearrow.broker.http.pages import LogIn

log = logging.getLogger("firearrow.metrics")

VALUES_MAX = 400_000
"""Values of one answer with history: a day of 46 series, an hour of all."""


class MetricsServices:
    def __init__(self, loop: asyncio.AbstractEventLoop, sources: Sources) -> None:
        self._loop = loop
        self._sources = sources
        self.thread = ServiceThread("metrics", lower_priority, lazy=True)
        self._lags = LagSnapshots(sources.context)
        self._history: History | None = open_history(sources.context.store.root)
        self._recorder = Recorder(sources, self._lags, self._history, self.thread)
        self._status = Status(
            sources, self._lags, version(sys.path), self._recorder.seconds_left, self.thread
        )
        self._http: HttpListener | None = None

    @asynccontextmanager
    async def running(self, base: Foundation, log_in: "LogIn | None") -> AsyncIterator[Address | None]:
        """Record the history, and serve HTTP if the options ask for it: its address. HTTP goes on until `close`, as
        /readyz reports that the broker stops. StartError."""
        self._recorder.start()
        try:
            is_encrypted = base.tls.listening is not None
            yield await self._listen(base.options, base.server.listen_http, log_in, is_encrypted=is_encrypted)
        finally:
            await self._recorder.stop()

    async def _listen(
        self, options: Options, bind: "Bind", log_in: "LogIn | None", *, is_encrypted: bool
    ) -> Address | None:
        """Serve HTTP if the options ask for it; returns the address. On loopback, only others that a proxy reports have
        to log in. StartError."""
        if options.metrics_exporter != "PROM":
            return None
        from firearrow.broker.http.listener import HttpListener  # noqa: PLC0415 (most brokers do not serve it)
        from firearrow.broker.http.pages import Pages  # noqa: PLC0415
        from firearrow.broker.metrics.exposition import OPEN_METRICS, TEXT  # noqa: PLC0415
        from firearrow.broker.metrics.scrape import Scrape  # noqa: PLC0415

        scrape = Scrape(self._sources, self._lags, self._recorder.seconds_left, self.thread)

        def metrics(is_open_metrics: bool) -> tuple[str, AsyncIterator[bytes]]:
            pieces = scrape.pieces(is_open_metrics=is_open_metrics)
            return OPEN_METRICS if is_open_metrics else TEXT, pieces

        host = options.metrics_host or LOOPBACK[0]
        is_local = host in (*LOOPBACK, "localhost")
        if log_in is not None and not is_local and not is_encrypted:
            log.warning(
                "passwords for the metrics on %s can be read by others on the way: use TLS "
                "(docs/SECURITY.md), or --http 127.0.0.1:%d with a proxy",
                host,
                options.metrics_port,
            )
        if log_in is not None and is_local:
            log_in = _of_others(log_in)
        pages = Pages(metrics, self._status.unready, self._status.members, log_in)
        self._http = HttpListener(self._loop, pages.answer, bind, self.thread)
        return await self._http.listen(host, options.metrics_port)

    async def close(self) -> None:
        """Stop serving HTTP."""
        if self._http is not None:
            await self._http.close()
        self.thread.shutdown(cancel_futures=True)

    async def unready(self) -> str | None:
        """Why the broker does not serve, as /readyz states it; None: it does."""
        return await self._status.unready()

    async def status(self) -> bytes:
        """The JSON of the status."""
        return orjson.dumps(await self._status.members())

    async def history(self, first_ms: int, last_ms: int, prefix: str) -> bytes:
        """The JSON of the history of this time and of the series whose names begin so. ValueError: there is none, or
        it is too much for one answer."""
        if self._history is None:
            raise ValueError("there is no history: its file could not be used at the start")
        first, last = first_ms // STEP_MS, min(last_ms, self._sources.context.clock.now_ms()) // STEP_MS
        first = max(first, last - ROWS + 1, 0)
        names = self._history.names(prefix)
        count = max(last - first + 1, 0) * len(names)
        if count > VALUES_MAX:
            raise ValueError(
                f"the history of this time has {count} values, at most {VALUES_MAX} are sent: ask for less time or for "
                "fewer series"
            )
        history = self._history

        def read() -> bytes:
            series = history.read(first * STEP_MS, last * STEP_MS, names)
            kept = {name: values for name, values in series.items() if any(v is not None for v in values)}
            return orjson.dumps({"stepMs": STEP_MS, "fromMs": first * STEP_MS, "series": kept})

        return await self._loop.run_in_executor(self.thread, read)


def make_metrics(
    base: Foundation, ports: Ports, services: Services, registrar: Registrar, replication: Replication
) -> MetricsServices:
    """They do not run yet."""
    lifecycle, messages, side = base.lifecycle, services.messages, replication.side
    master = side if isinstance(side, HAService) else None
    sources = Sources(
        context=services.context,
        server=base.server,
        flusher=base.flusher,
        retention=services.retention,
        threads=base.threads,
        registrar=registrar,
        held_pulls=base.held_pulls,
        held_pops=messages.held_pops,
        in_progress=ports.in_progress,
        timers=messages.timers,
        transactions=messages.transactions,
        revive=messages.revive,
        renewals=lambda: (len(messages.receipts), messages.receipts.dropped),
        counters=None if services.fast_path is None else services.fast_path.counters,
        address=ports.address,
        ready=lambda: lifecycle.is_ready,
        stopping=lifecycle.stopping.is_set,
        replication=None if side is None else partial(status_of, replication, side),
        replicas=list if master is None else master.registry.expected_replicas,
        never_joined=lambda: 0 if master is None else master.registry.never_joined,
        write_fault=replication.write_fault,
        followed=side.lag if isinstance(side, Slave) else None,
    )
    metrics = MetricsServices(base.loop, sources)
    base.files.push_async_callback(metrics.close)
    base.threads.watch(metrics.thread)
    return metrics


def _of_others(log_in: "LogIn") -> "LogIn":
    """A login that this machine does not need."""

    def fault(visitor: "Visitor", user: str, password: str) -> str | None:
        return None if is_loopback(visitor.host) else log_in(visitor, user, password)

    return fault
