"""App: the composition root of the broker: builds all objects, starts and stops them in order.

Start: lock and recover the store → journal, flusher, server, write batch → load the tables → listeners,
handlers → register with name servers → services → ready. Stop, in the opposite order: stop reading requests →
answer pending ones → unregister → write and sync → save the files → mark the store as cleanly closed.

Whatever is started registers its undo at once, so a start that fails half way is rolled back. There are two
stacks of undos: `files` closes what `running` still writes to, after everything in `running` has stopped.

The rest of the composition: `store` opens the store, `broker.context.tables` loads the tables,
`message_services` builds what handles messages beyond a plain send (with `pop_services` and
`timer_services`), `replication_services` a master or slave, `fast_path` the fast path, `metrics_services`
metrics, status and history, and `name_server` the name server. They share one `BrokerContext`. Loop thread.
"""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.fast_connection import FastHandler
from firearrow._native.fastpath.fast_dispatch import CompleteDispatch
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.app.access import LOOPBACK, make_access, warn_of_open_ports
from firearrow.broker.app.fast_path import FastPathSetup
from firearrow.broker.app.message_services import MessageServices
from firearrow.broker.app.metrics_services import MetricsServices
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.app.replication_services import ReplicationServices
from firearrow.broker.app.store import close_store, open_journal, open_store, report_entry_repairs
from firearrow.broker.append.broadcast_offsets import BroadcastOffsets
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.base import systemd
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config, tls_pairs
from firearrow.broker.base.disk_space import measured
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.log_output import announce, announce_ready
from firearrow.broker.base.memory_limits import LEAST, MemoryLimits, Shares
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.options import PROXIES_KEY, Options
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.base.process import StopSignals, seconds_since_start
from firearrow.broker.base.stats import Stats
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.context.tables import make_tables
from firearrow.broker.handlers.assignment import AssignmentHandler
from firearrow.broker.handlers.broker_admin import ColdReadsHandler, InspectionHandler, SingleBrokerHandler
from firearrow.broker.handlers.clients import ClientsHandler
from firearrow.broker.handlers.consumer_admin import ConsumersHandler, ProducersHandler, ProgressHandler
from firearrow.broker.handlers.extensions import ConnectionsHandler, LagHandler
from firearrow.broker.handlers.groups import GroupsHandler
from firearrow.broker.handlers.lock_queues import LocksHandler
from firearrow.broker.handlers.machine import MachineHandler
from firearrow.broker.handlers.offsets import OffsetsHandler, QueuesHandler
from firearrow.broker.handlers.pull import PullHandler
from firearrow.broker.handlers.query import QueryHandler
from firearrow.broker.handlers.quotas import QuotasHandler
from firearrow.broker.handlers.reset_offsets import ResetsHandler
from firearrow.broker.handlers.status import StatusHandler
from firearrow.broker.handlers.topics import CleaningHandler, TopicsHandler
from firearrow.broker.handlers.trim_topic import TrimHandler
from firearrow.broker.metrics.sources import Sources
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.durable_replies import reply_when_saved
from firearrow.broker.net.refusals import RefusalLog
from firearrow.broker.net.server import Server, ServerConnection
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import QUOTAS_FILE, QuotaTable
from firearrow.broker.replication.controller.client import ControllerClient
from firearrow.broker.replication.failover.role import BrokerRole
from firearrow.broker.services.flusher import Flusher
from firearrow.broker.services.registration import Registrar, addresses
from firearrow.broker.services.retention import Retention
from firearrow.broker.services.route_lookup import RouteLookup
from firearrow.broker.services.stats_timer import StatsTimer
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.services.thread_watch import LOOK_S, SYNC_HUNG_S, LogSync, ThreadWatch
from firearrow.broker.services.timers import Periodic
from firearrow.broker.services.topic_recovery import drop_deleted_queues, recover_topics, trim_again
from firearrow.broker.tables.broker_name import remember
from firearrow.broker.tables.clients import SUBSCRIPTIONS_WEIGHT_MAX
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.subscription_filter import FilterCache

log = logging.getLogger("firearrow.app")

STOP_S = 1.0
CLIENTS_SWEEP_S, BROADCASTS_SWEEP_S, SYNC_TIMEOUT_SWEEP_S, ACCESS_READ_S = 10, 5, 1, 5
MEMORY_LOOK_S = 1
VIP_PORT_GAP = 2
VIP_TRIES = 50
NOT_ON_VIP = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class App:
    """One start of the broker. `passed`: the sockets that systemd passed to the process. `role`: the one that the store
    remembers, which the options follow already. `controllers`: with enableControllerMode. `truncate_at`: the log is
    truncated there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        naming: Address | None,
        signals: StopSignals,
        passed: systemd.PassedSockets,
        role: BrokerRole,
        controllers: ControllerClient | None,
        truncate_at: int | None,
    ) -> None:
        self._loop = loop
        self._role = role
        self._truncate_at = truncate_at
        self._config = config
        self._naming_listen = naming
        self._signals = signals
        self._began = loop.time() if signals.are_handled else None
        self._tls = ServerTls(tls_pairs(config.options))
        self._memory = MemoryLimits(self._explicit_memory)
        self._clock = Clock()
        self._replication = ReplicationServices(
            loop, config, self._clock, self._tls, role, controllers, self.restart
        )
        self._refusals = RefusalLog(self._clock)
        self._passed = passed
        self._stopping = asyncio.Event()
        self._restart: Restart | None = None
        self._is_ready = False
        self._fast_path: FastPathSetup | None = None
        self._metrics: MetricsServices | None = None
        self._http: Address | None = None
        self._unsaved: OSError | None = None

    async def run(self) -> Restart | None:
        """Serve until SIGTERM or SIGINT, or until the broker has to start again. StartError when it cannot."""
        async with AsyncExitStack() as files, AsyncExitStack() as running:
            await self._start(files, running)
            self._signals.handle(self._stopping.set)
            line = self._ready()
            self._is_ready = True
            announce_ready(line)
            if self._http is not None:
                scheme = "https" if self._tls.enforcing else "http"
                announce("firearrow metrics: {}://{}:{}/metrics".format(scheme, *self._http))
            systemd.notify(systemd.READY, f"STATUS={line}")
            if not self._signals.stopped:  # else while it started again
                await self._stopping.wait()
            if self._signals.stopped:
                systemd.notify(systemd.STOPPING)
        if not self._signals.stopped and self._restart is not None:
            announce(f"firearrow restarts: {self._restart.reason}")
            return self._restart
        announce(f"firearrow stopped: broker {self._address[0]}:{self._address[1]}, store {self._store.root}")
        return None

    @property
    def naming(self) -> Address | None:
        """Where the name server listens, so that it keeps the port that was found for 0."""
        return None if self._naming_listen is None else self._naming

    def restart(self, restart: Restart) -> None:
        """Stop, and have the broker started again; the first reason counts."""
        if self._restart is None:
            self._restart = restart
            self._stopping.set()

    async def _start(self, files: AsyncExitStack, running: AsyncExitStack) -> None:
        options = self._config.options
        killed = (Path(options.store_root) / "abort").exists()
        self._open_store(options, files)
        # after a promotion: what its master had not sent yet is missing, as after a kill
        killed = self._killed = killed or self._role.begins
        self._replication.open(self._store, killed=killed)
        running.push_async_callback(self._close_metrics)
        self._start_writing(options, running)
        self._make_write_batch(options)
        self._load_tables(options)
        files.callback(self._access.close)
        await self._listen(options, files, running)
        await self._register(options, running)
        running.push_async_callback(self._answer_all)
        running.callback(self._message_services.stop)
        with self._store.whole_log_visible():
            self._restore(options, killed=killed)
        self._start_services(running)
        await self._start_metrics(options, running)
        self._replication.start(self._tables.topics, running)
        self._server.start_serving()  # not before: clients would see progress that is not restored yet
        gc.collect(1)  # all objects would take as long as opening the store; hardly any garbage is older
        gc.freeze()

    def _restore(self, options: Options, *, killed: bool) -> None:
        """What the log states of topics and of pending work."""
        tables = self._tables
        drop_deleted_queues(tables.deleted, self._store)
        trim_again(tables.trimmed, self._store)
        # the master may have created topics a moment before a slave took over
        takes_over = not options.is_slave and FollowedLog(self._store).has_followed()
        if killed or takes_over or not tables.topics_loaded:
            version = tables.topics.version
            recover_topics(
                tables.topics,
                self._store,
                tables.offsets,
                min_queues=options.default_queues if tables.topics_loaded else 1,
                saved_ms=version.timestamp if tables.topics_loaded else 0,
            )
            if options.is_slave:
                tables.topics.version = version  # what the log gets next may be older than these topics
        self._message_services.start(
            killed=killed,
            works=not options.is_slave and not self._replication.is_isolated,
            truncated=self._truncate_at is not None,
        )

    # ---- building ----

    def _open_store(self, options: Options, files: AsyncExitStack) -> None:
        self._role.rebuild(options)
        self._store = open_store(options, self._truncate_at)
        files.callback(self._close_store)
        for finding in self._store.findings:
            log.warning("%s", finding)
        self._role.open(self._store.written, is_slave=options.is_slave)
        remember(options)
        self._journal = open_journal(self._store)
        files.callback(self._journal.close)

    def _start_writing(self, options: Options, running: AsyncExitStack) -> None:
        """Start flusher and table saver; create the server, whose last answers are sent before the flusher
        stops."""
        self._threads = ThreadWatch(self._loop, self._store, self._refuse_waiting)
        self._flusher = Flusher(
            self._loop,
            self._store,
            sync_flush=options.sync_flush,
            interval_ms=lambda: self._config.options.flush_interval_ms,
            queue_interval_ms=lambda: self._config.options.queue_flush_interval_ms,
            synced=lambda offset: self._write_batch.synced(offset),  # noqa: PLW0108 (created later)
            ended=self._threads.ended,
        )
        self._saver = TableSaver(self._loop, self._sync_before_save)
        running.callback(self._save, self._saver.stop)
        self._flusher.start()
        running.callback(self._flusher.stop)
        self._watch_threads()
        self._server = Server(
            self._loop,
            idle_s=options.idle_s,
            frame_bytes_max=options.frame_bytes_max,
            use_poller=options.fast_sockets,
            memory=self._memory,
            passed=self._passed,
            tls=self._tls,
        )
        self._server.trust_proxies(options.proxy_networks)
        running.push_async_callback(self._server.close, STOP_S)
        self._tls.start(self._loop)
        running.callback(self._tls.stop)

    def _refuse_waiting(self, reason: str) -> None:
        """A thread has ended."""
        self._write_batch.sync_failed(f"service not available now. {reason}")
        self._saver.finish()

    def _watch_threads(self) -> None:
        """Those that keep what was acknowledged; others add themselves when they are built."""

        def sync_hung_s() -> float:
            options = self._config.options
            return SYNC_HUNG_S + 2 * max(options.flush_interval_ms, options.queue_flush_interval_ms) / 1000

        self._threads.watch(LogSync(self._store), sync_hung_s, stops_when_hung=True)
        for thread in (*self._flusher.threads, *self._saver.threads):
            self._threads.watch(thread)

    def _make_write_batch(self, options: Options) -> None:
        """The write batch, and what it notifies of new messages."""
        self._hold_service = PullHoldService(self._loop, self._clock, options.held_pulls_max)
        self._arrivals = ArrivalNotifier(self._hold_service)
        self._complete_dispatch = CompleteDispatch(self._hold_service)
        self._write_batch = WriteBatch(
            self._server.scheduler,
            self._store,
            self._clock,
            sync_timeout_ms=options.sync_flush_timeout_ms,
            arrivals=self._arrivals,
            request_sync=self._flusher.request_sync,
            full=_disk_fault,
            journal=self._journal,
        )
        self._config.listen(self._set_limits)

    def _load_tables(self, options: Options) -> None:
        tables = self._tables = make_tables(options, self._clock, self._saver, self._journal)
        self._name_server = NameServer(
            self._clock,
            NamingOptions({PROXIES_KEY: options.proxies}),
            lambda: self._saver.schedule("kv"),
            self._connect,
        )
        self._kv_file = Path(options.store_root) / "config" / "kvConfig.json"
        self._config.listen(self._tables.configure)
        self._saver.load("kv", ConfigFile(self._kv_file), self._name_server.kv, make=False)
        self._stats = Stats(options.cluster_name, self._clock.now_ms())
        quotas = QuotaTable(lambda: self._saver.schedule("quotas"))
        quotas_file = ConfigFile(self._kv_file.with_name(QUOTAS_FILE), strict=True)
        self._saver.load("quotas", quotas_file, quotas, make=False)
        self._quotas = QuotaCheck(quotas)
        self._server.limit_addresses(self._quotas.admits)
        self._access = make_access(options, self._store, self._saver, self._clock, self._quotas.logged_in)
        log_folder = options.commitlog_path or str(Path(options.store_root) / "commitlog")
        self._retention = Retention(
            self._loop,
            self._store,
            self._config,
            self._clock,
            tables.trimmed,
            measure=lambda: measured(log_folder, options.store_root),
            moved=self._arrivals,
        )
        self._threads.watch(self._retention.thread)

    def _make_context(self) -> BrokerContext:
        return BrokerContext(
            self._loop,
            self._store,
            self._write_batch,
            self._journal,
            self._saver,
            self._tables,
            self._config,
            self._clock,
            self._stats,
            self._quotas,
            self._access.held,
            self.restart,
            self._memory,
        )

    def _broker_routes(self, store_host: bytes, files: AsyncExitStack) -> list[Routes]:
        context = self._context = self._make_context()
        tables, config, clock = context.tables, context.config, context.clock
        filters = FilterCache(config, tables.clients.subscription)
        self._broadcasts = BroadcastOffsets(context.store, tables.offsets, tables.clients, config, clock)
        self._clients_handler = ClientsHandler(
            tables.topics, tables.groups, tables.clients, filters, config, clock
        )
        pulls = PullHandler(context, filters, self._broadcasts, self._hold_service)
        self._message_services = MessageServices(context, filters, store_host)
        files.callback(self._save, self._message_services.close)
        self._message_services.listen(self._arrivals)
        self._replication.build(
            context,
            self._arrivals,
            self._message_services,
            self._connect,
            self._other_name_servers(config.options),
            self._go_online,
            files,
        )
        if config.options.fast_path:
            self._fast_path = FastPathSetup(
                context, store_host, pulls, self._hold_service, self._server.times, self._access.fast_check
            )
        routes = [*self._own_routes(context, pulls), *self._message_services.routes(), *self._access.routes()]
        return self._replication.routes(routes)

    def _own_routes(self, context: BrokerContext, pulls: PullHandler) -> list[Routes]:
        """Of the handlers that need none of the message services."""
        store, tables, config, clock, stats = (
            context.store,
            context.tables,
            context.config,
            context.clock,
            context.stats,
        )
        topics, groups, offsets, clients = tables.topics, tables.groups, tables.offsets, tables.clients
        handlers = (
            pulls,
            QueryHandler(store, clients, config, context.quotas),
            self._clients_handler,
            OffsetsHandler(
                store, topics, groups, offsets, tables.deleted, config, context.make_offsets_durable
            ),
            QueuesHandler(store),
            LocksHandler(tables.locks),
            TopicsHandler(store, topics, offsets, tables.deleted, config, clock, stats),
            GroupsHandler(topics, groups, offsets, config, stats),
            CleaningHandler(
                store,
                topics,
                tables.deleted,
                delete_expired=self._retention.delete_expired,
                clean_queues=self._retention.clean_queues,
            ),
            ResetsHandler(store, topics, groups, offsets, clients, config),
            ConsumersHandler(store, topics, groups, offsets, clients, config),
            ProducersHandler(clients, clock),
            AssignmentHandler(topics, groups, clients, tables.modes, config, self._routing.queues),
            ProgressHandler(store, topics, groups, offsets, clients, config, clock, stats),
            InspectionHandler(store, config, clock, stats, self._runtime_parts()),
            MachineHandler(self._listening, clients, config, clock, stats),
            ColdReadsHandler(),
            SingleBrokerHandler(config, self._replication.epoch_cache),
            TrimHandler(context, moved=self._arrivals, free=self._retention.free_trimmed),
            LagHandler(context),
            QuotasHandler(self._quotas, self._access.audit),
            ConnectionsHandler(
                clients,
                clock,
                self._refusals,
                connections=lambda: self._server.connections,
                loop_time=self._loop.time,
            ),
            StatusHandler(
                clock,
                lambda: self._metrics_services().status(),
                lambda *span: self._metrics_services().history(*span),
            ),
        )
        return [handler.routes() for handler in handlers]

    def _runtime_parts(self) -> list[Callable[[], dict[str, str]]]:
        fast_path = [] if self._fast_path is None else [self._fast_path.runtime_info]
        return [self._message_services.timer_info, *fast_path]

    # ---- listening ----

    async def _listen(self, options: Options, files: AsyncExitStack, running: AsyncExitStack) -> None:
        naming: list[Routes] = []
        if self._naming_listen is not None:
            naming = [reply_when_saved(routes, self._saver) for routes in self._name_server.handlers()]
            self._naming = await self._server.listen(
                *self._naming_listen,
                Dispatch(naming, self._refusals, self._access.check, instead=self._name_server.instead()),
                option="--namesrv-listen",
            )
            self._name_server.describe(self._naming, self._kv_file)
            self._server.start_serving()
        self._dispatches = self._dispatch, vip_dispatch = tuple(
            Dispatch((), self._refusals, self._access.check, self._quotas, self._access.held)
            for _ in range(2)
        )
        address, vip = await self._listen_with_vip(options, vip_dispatch)
        self._passed.close()
        self._address = address
        self._listening = address, (address[0], vip)
        self._port_asked = options.listen_port
        self._config.set_port(address[1])
        self._routing = RouteLookup(
            self._name_server.routes if self._naming_listen is not None else None,
            self._other_name_servers(options),
            connect=self._connect,
            clock=self._clock,
            period_ms=options.route_period_ms,
        )
        self._identity = await self._replication.listen(
            self._write_batch,
            self._name_server.routes,
            self._messages_sent,
            running,
            any_port=self._port_asked == 0,
        )
        store_host = host_bytes(_advertised_address(options), self._config.options.client_port)
        own = [reply_when_saved(routes, self._saver) for routes in self._broker_routes(store_host, files)]
        routes = [*own, *naming]
        self._dispatch.add(routes)
        vip_dispatch.add(routes, without=NOT_ON_VIP)
        log.info("broker on %s:%d, VIP port %d", *address, vip)

    async def _listen_with_vip(self, options: Options, vip_dispatch: Dispatch) -> tuple[Address, int]:
        """Listen on the broker's port and on the VIP port two below it, to which old Java clients send. Port
        0 finds a free pair. StartError."""
        check_port(options.listen_port)
        listen, host = self._server.listen, options.bind_address
        for _ in range(VIP_TRIES if options.listen_port == 0 else 1):
            address = await listen(
                host, options.listen_port, self._dispatch, lambda: self._fast_handler(vip=False)
            )
            try:
                vip = await listen(
                    host, address[1] - VIP_PORT_GAP, vip_dispatch, lambda: self._fast_handler(vip=True)
                )
            except StartError as error:
                self._server.stop_listening(address)
                if options.listen_port:
                    place = f"the VIP port, {VIP_PORT_GAP} below the broker's port {address[1]}"
                    raise StartError(f"cannot open {place}: {error}") from None
                continue
            return address, vip[1]
        raise StartError("no free pair of ports was found: choose the broker's port with --listen")

    def _messages_sent(self) -> int:
        self._stats.gather()
        return self._stats.put_times

    async def _register(self, options: Options, running: AsyncExitStack) -> None:
        embedded = self._naming_listen is not None
        self._registrar = Registrar(
            self._identity,
            self._tables.topics,
            permission=lambda: self._config.options.broker_permission,
            own=(self._name_server.routes, self._name_server.kv) if embedded else None,
            others=self._other_name_servers(options),
            connect=self._connect,
            period_ms=options.register_period_ms,
        )
        self._registrar.answered = self._replication.registered()
        self._tables.topics.listen(self._registrar.changed)
        self._registered_permission = options.broker_permission
        self._config.listen(self._register_permission)
        running.push_async_callback(self._unregister)
        await self._replication.register(self._registrar, self._name_server.routes, running)

    def _go_online(self) -> None:
        """This master has taken over from its slaves."""
        with self._store.whole_log_visible():
            self._message_services.work(killed=self._killed)
        for connection in self._server.connections:
            if connection.fast_handler is self._complete_dispatch:
                connection.fast_handler = self._fast_handler(vip=connection.local[1] != self._address[1])

    async def _connect(self, host: str, port: int) -> ServerConnection:
        """A connection to another server, on which our requests are signed if there are keys."""
        return await self._server.connect(host, port, self._access.sign)

    def _other_name_servers(self, options: Options) -> list[Address]:
        return addresses(options.name_servers, self._naming if self._naming_listen is not None else None)

    def _fast_handler(self, *, vip: bool) -> FastHandler:
        if self._fast_path is None or self._replication.is_isolated:
            return self._complete_dispatch
        return self._fast_path.vip_dispatch if vip else self._fast_path.fast_dispatch

    def _ready(self) -> str:
        naming = "off" if self._naming_listen is None else f"{self._naming[0]}:{self._naming[1]}"
        self._hint_at_loopback()
        seconds = seconds_since_start() if self._began is None else self._loop.time() - self._began
        return (
            f"firearrow ready: broker {self._address[0]}:{self._address[1]}, name server {naming}, "
            f"store {self._store.root}, {len(self._tables.topics)} topics, {seconds:.2f} s"
        )

    def _hint_at_loopback(self) -> None:
        """Report how to accept connections from other hosts, with the ports that were asked for."""
        hints = []
        if self._address[0] in LOOPBACK:
            hints.append(f"--listen 0.0.0.0:{self._port_asked}")
        if self._naming_listen is not None and self._naming[0] in LOOPBACK:
            hints.append(f"--namesrv-listen 0.0.0.0:{self._naming_listen[1]}")
        if hints:
            log.info(
                "listening on loopback only; to accept connections from other hosts: %s", " ".join(hints)
            )
        reached = [self._address, *([] if self._naming_listen is None else [self._naming])]
        may = "read, send and delete everything"
        warn_of_open_ports(reached, may, users=self._access.check is not None, tls=self._tls)

    # ---- running ----

    def _start_services(self, running: AsyncExitStack) -> None:
        self._retention.start()
        running.push_async_callback(self._retention.stop)
        running.callback(StatsTimer(self._loop, self._stats, self._clock).stop)
        self._name_server.start(self._loop)
        running.callback(self._name_server.stop)
        periodic = Periodic(self._loop)
        running.callback(periodic.stop)
        periodic.every(ACCESS_READ_S, self._access.read_again)
        periodic.every(CLIENTS_SWEEP_S, self._clients_handler.sweep)
        periodic.every(CLIENTS_SWEEP_S, self._tables.locks.sweep)
        periodic.every(BROADCASTS_SWEEP_S, self._broadcasts.expire)
        periodic.every(SYNC_TIMEOUT_SWEEP_S, self._write_batch.expire)
        self._memory.listen(self._set_memory)
        self._config.listen(lambda _: self._memory.look())
        self._memory.report()
        periodic.every(MEMORY_LOOK_S, self._server.look_at_memory)
        periodic.every(SYNC_TIMEOUT_SWEEP_S, lambda: report_entry_repairs(self._store))
        periodic.every(LOOK_S, self._threads.look)
        running.callback(self._server.stop_reading)

    async def _start_metrics(self, options: Options, running: AsyncExitStack) -> None:
        services, slave = self._message_services, self._replication.slave
        sources = Sources(
            context=self._context,
            server=self._server,
            flusher=self._flusher,
            retention=self._retention,
            threads=self._threads,
            registrar=self._registrar,
            held_pulls=self._hold_service,
            held_pops=services.held_pops,
            in_progress=lambda: self._dispatch.in_progress,
            timers=services.timers,
            transactions=services.transactions,
            revive=services.revive,
            counters=None if self._fast_path is None else self._fast_path.counters,
            address=self._address,
            ready=lambda: self._is_ready,
            stopping=self._stopping.is_set,
            replication=self._replication.status,
            replicas=self._replication.replicas,
            never_joined=self._replication.never_joined,
            write_fault=self._replication.write_fault,
            followed=None if slave is None else slave.lag,
        )
        self._metrics = MetricsServices(self._loop, sources)
        self._threads.watch(self._metrics.thread)
        self._metrics.start()
        running.push_async_callback(self._metrics.stop)
        self._http = await self._metrics.listen(
            options,
            self._server.listen_with,
            self._access.log_in,
            is_encrypted=self._tls.listening is not None,
        )

    async def _close_metrics(self) -> None:
        """Last of all: until then /readyz states that the broker stops."""
        if self._metrics is not None:
            await self._metrics.close()

    def _metrics_services(self) -> MetricsServices:
        if self._metrics is None:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "the broker is starting: try again later")
        return self._metrics

    def _register_permission(self, options: Options) -> None:
        """Clients stop sending or pulling when the routes no longer permit it."""
        if options.broker_permission != self._registered_permission:
            self._registered_permission = options.broker_permission
            self._tables.topics.announce_all()

    def _sync_before_save(self) -> None:
        """Sync log and journal before a progress file that refers to them. Saver's thread. OSError."""
        self._flusher.sync_to_disk()
        with suppress(OSError):  # the journal logs it
            self._journal.sync()

    def _set_limits(self, options: Options) -> None:
        self._hold_service.count_max = options.held_pulls_max
        self._server.idle_s = options.idle_s
        self._write_batch.set_sync_timeout(options.sync_flush_timeout_ms)
        self._store.max_message_bytes = options.max_message_bytes
        self._store.reader.set_limits(
            in_memory_bytes=self._memory.limit * options.in_memory_percent // 100,
            bytes_in_memory=options.bytes_in_memory,
            count_in_memory=options.count_in_memory,
            bytes_on_disk=options.bytes_on_disk,
            count_on_disk=options.count_on_disk,
            filter_bytes=options.filter_bytes,
        )

    def _explicit_memory(self) -> dict[str, int]:
        options = self._config.options
        return {"connections": options.connection_bytes_max, "replies": options.reply_bytes_max}

    def _set_memory(self, shares: Shares) -> None:
        """What clients can make the broker hold; the message services listen themselves."""
        self._hold_service.bytes_max = shares.held_pulls
        self._tables.clients.weight_max = min(SUBSCRIPTIONS_WEIGHT_MAX, shares.subscriptions // 100)
        for dispatch in self._dispatches:
            dispatch.running_bytes_max = max(shares.requests // 2, LEAST.requests)
        self._set_limits(self._config.options)

    # ---- stopping ----

    async def _answer_all(self) -> None:
        """Answer every request that was accepted."""
        self._hold_service.release_all()
        self._write_batch.commit()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S / 2):
                await self._write_batch.settled()
                await self._dispatch.drain()

    async def _unregister(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S / 2):
                await self._registrar.stop()

    def _save(self, save: Callable[[], None]) -> None:
        """Save. What cannot be saved stays in the journal, which is valid until the store is closed
        cleanly."""
        try:
            save()
        except OSError as error:
            log.error("not everything could be saved: %s", error)
            self._unsaved = error

    def _close_store(self) -> None:
        slave = self._replication.slave
        keep_journal = slave is not None and slave.keeps_journal
        close_store(self._store, unsaved=self._unsaved, keep_journal=keep_journal)


def check_port(port: int) -> None:
    """StartError: there is no VIP port two below this one."""
    if port in range(1, VIP_PORT_GAP + 1):
        raise StartError(
            f"port {port} leaves none for the VIP port two below it: use a higher one in --listen"
        )


def _disk_fault(error: Exception) -> str:
    what = (error.strerror if isinstance(error, OSError) else None) or str(error) or "no memory"
    return f"service not available now. The message could not be written to the disk: {what}"


def _advertised_address(options: Options) -> str:
    """One fixed address for records and message ids: brokerIP1, the bound one, or the address of the host's name."""
    if options.broker_ip:
        try:
            return _address_of(options.broker_ip)
        except OSError:
            log.warning("brokerIP1=%s has no address here: message ids name another one", options.broker_ip)
    if options.bind_address not in ("0.0.0.0", "::"):
        return _address_of(options.bind_address)
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _address_of(host: str) -> str:
    name = host.encode() if host.isascii() else host  # of a str, Python imports the tables for IDNA
    return str(socket.getaddrinfo(name, None)[0][4][0])
