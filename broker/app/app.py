"""App: one start of the broker. It builds the parts in this order, runs, and stops them in the opposite one.

- `foundation`: store, journal, flusher, saver, server, write batch; closed last, the store cleanly
- `load_state`: tables, users and rules, quotas, statistics, name server
- `listen`: the ports; only the name server answers already
- `replication_port`: where slaves copy the log
- `make_registrar`: for what listens
- `make_services`: pulls, message services with POP and timers, fast path, retention; they do not run yet
- `make_replication`: Standalone, Replicated or Controlled
- `make_metrics`: metrics, status and history of all that; HTTP ends after what it reports of
- `registered`: with the name servers
- `run_services`: restore progress, then run
- the metrics and replication start, and the broker's ports are served: not before, clients would see progress that is
  not restored yet

Each part is a frozen value that the next ones are made from. What is started registers its undo at once, so a start
that fails half way is rolled back. Loop thread.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple

from firearrow.broker.app.foundation import STOP_S, Foundation, Lifecycle, Start, foundation
from firearrow.broker.app.grpc_services import GrpcServices
from firearrow.broker.app.metrics_services import MetricsServices, make_metrics
from firearrow.broker.app.ports import ANY_HOST, Ports, hint_at_loopback, listen
from firearrow.broker.app.replication import Replication, make_replication, replication_port
from firearrow.broker.app.services import Services, make_services, run_services, serve_fast_path
from firearrow.broker.app.state import State, load_state
from firearrow.broker.base import systemd
from firearrow.broker.base.log_output import announce, announce_ready
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.base.process import seconds_since_start
from firearrow.broker.context.broker_context import Restart
from firearrow.broker.handlers.access_routes import access_routes
from firearrow.broker.handlers.broker_routes import HandlerServices, broker_routes
from firearrow.broker.net.durable_replies import reply_when_saved
from firearrow.broker.replication.slave import check_slave
from firearrow.broker.services.registration import Registrar, addresses
from firearrow.broker.services.route_lookup import RouteLookup
from firearrow.broker.tables.registration import BrokerIdentity


class Broker(NamedTuple):
    """What serves now. `http`: where it serves metrics, `console`: where a visit starts it; None: nowhere."""

    base: Foundation
    state: State
    ports: Ports
    http: Address | None
    console: Address | None


class App:
    """`naming`: where the name server listens, so that the next start keeps the port that was found for 0."""

    def __init__(self, start: Start) -> None:
        self.naming = start.naming
        self._start = start
        self._began = start.loop.time() if start.signals.are_handled else None
        self._lifecycle = Lifecycle()

    async def run(self) -> Restart | None:
        """Serve until SIGTERM or SIGINT, or until the broker has to start again. StartError when it cannot."""
        signals, lifecycle = self._start.signals, self._lifecycle
        options = self._start.config.options
        if not self._start.role.fenced:
            check_slave(options, addresses(options.name_servers))
        async with serving(self._start, lifecycle) as broker:
            ports = broker.ports
            self.naming = ports.naming
            signals.handle(lifecycle.stopping.set)
            line = self._ready_line(broker)
            lifecycle.is_ready = True
            announce_ready(line)
            if broker.http is not None:
                scheme = "https" if broker.base.tls.enforcing else "http"
                announce("firearrow metrics: {}://{}:{}/metrics".format(scheme, *broker.http))
            if broker.console is not None:
                announce("firearrow console: http://{}:{}".format(*broker.console))
            systemd.notify(systemd.READY, f"STATUS={line}")
            if not signals.stopped:  # else while it started again
                await lifecycle.stopping.wait()
            if signals.stopped:
                systemd.notify(systemd.STOPPING)
        if not signals.stopped and lifecycle.restart is not None:
            announce(f"firearrow restarts: {lifecycle.restart.reason}")
            return lifecycle.restart
        announce("firearrow stopped: broker {}:{}, store {}".format(*ports.address, broker.base.store.root))
        return None

    def _ready_line(self, broker: Broker) -> str:
        base, ports = broker.base, broker.ports
        naming = "off" if ports.naming is None else "{}:{}".format(*ports.naming)
        hint_at_loopback(base, broker.state, ports)
        seconds = seconds_since_start() if self._began is None else base.loop.time() - self._began
        return (
            f"firearrow ready: broker {ports.address[0]}:{ports.address[1]}, name server {naming}, "
            f"store {base.store.root}, {len(broker.state.tables.topics)} topics, {seconds:.2f} s"
        )


@asynccontextmanager
async def serving(start: Start, lifecycle: Lifecycle) -> AsyncIterator[Broker]:
    """The broker serves clients. StartError."""
    async with AsyncExitStack() as running:
        base = await running.enter_async_context(foundation(start, lifecycle))
        state = load_state(base)
        ports = await listen(base, state)
        port = await running.enter_async_context(replication_port(base, state, ports))
        registrar = make_registrar(base, state, ports, port.identity)
        services = make_services(base, state, ports)
        replication = make_replication(base, state, ports, services, port, registrar)
        metrics = make_metrics(base, ports, services, registrar, replication)
        ports.serve(
            reply_when_saved(routes, base.saver)
            for routes in _routes(base, state, ports, services, replication, metrics)
        )
        await running.enter_async_context(_registered(registrar))
        await replication.register(running)
        is_isolated = replication.is_isolated
        await running.enter_async_context(run_services(base, state, ports, services, is_isolated=is_isolated))
        http = await running.enter_async_context(metrics.running(base, state.access.log_in))
        if not is_isolated:
            serve_fast_path(base, ports, services)
        replication.start(running)
        grpc = GrpcServices(
            base,
            state,
            ports,
            services,
            replication,
            works=lambda: not (base.options.is_slave or replication.is_isolated),
            unready=metrics.unready,
        )
        await grpc.listen()
        grpc.serve()
        running.callback(grpc.stop)
        base.server.start_serving()
        gc.collect(1)  # all objects would take as long as opening the store; hardly any garbage is older
        gc.freeze()
        yield Broker(base, state, ports, http, await _console(base, ports, running))


async def _console(base: Foundation, ports: Ports, running: AsyncExitStack) -> Address | None:
    """Where the console can be visited, if the options ask for it. StartError."""
    if not base.options.console_listen:
        return None
    from firearrow.broker.app.console import console  # noqa: PLC0415 (most brokers have none)

    name_servers = ports.name_servers
    if ports.naming is not None:
        host, port = ports.naming
        name_servers = [("127.0.0.1" if host in ANY_HOST else host, port)]
    started = console(base.loop, base.options, name_servers, base.tls.settings)
    return await running.enter_async_context(started)


# ---- the name servers ----


def make_registrar(base: Foundation, state: State, ports: Ports, identity: BrokerIdentity) -> Registrar:
    """It registers what has changed once it is started."""
    config, topics = base.config, state.tables.topics
    embedded = ports.naming is not None
    registrar = Registrar(
        identity,
        topics,
        permission=lambda: config.options.broker_permission,
        own=(state.name_server.routes, state.name_server.kv) if embedded else None,
        others=ports.name_servers,
        connect=state.connect,
        period_ms=config.options.register_period_ms,
    )
    topics.listen(registrar.changed)
    registered = config.options.broker_permission

    def register_permission(options: Options) -> None:
        """Clients stop sending or pulling when the routes no longer permit it."""
        nonlocal registered
        if options.broker_permission != registered:
            registered = options.broker_permission
            topics.announce_all()

    config.listen(register_permission)
    return registrar


@asynccontextmanager
async def _registered(registrar: Registrar) -> AsyncIterator[None]:
    """Unregister at the end; replication registers, once it knows as what."""
    try:
        yield
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S / 2):
                await registrar.stop()


# ---- the requests ----


def _routes(
    base: Foundation,
    state: State,
    ports: Ports,
    services: Services,
    replication: Replication,
    metrics: MetricsServices,
) -> list[Routes]:
    """The handlers of the broker, as it serves them in its role."""
    fast_path = [] if services.fast_path is None else [services.fast_path.runtime_info]
    own = broker_routes(
        services.context,
        HandlerServices(
            pulls=services.pulls,
            clients=services.clients,
            arrivals=base.arrivals,
            retention=services.retention,
            routing=RouteLookup(
                None if ports.naming is None else state.name_server.routes,
                ports.name_servers,
                connect=state.connect,
                clock=base.clock,
                period_ms=base.options.route_period_ms,
            ),
            listening=(ports.address, ports.vip),
            connections=lambda: base.server.connections,
            refusals=ports.refusals,
            audit=state.access.audit,
            runtime_info=[services.messages.timer_info, *fast_path],
            epoch_cache=replication.epoch_cache,
            status=metrics.status,
            history=metrics.history,
        ),
    )
    of_access = access_routes(state.access, base.options, base.clock)
    return replication.routes([*own, *services.messages.routes(), *of_access])
