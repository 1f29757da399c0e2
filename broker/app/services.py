"""Services: what works on messages besides the write batch: pulls, the message services with POP and timers, the fast
path, retention; and what runs beside them every few seconds. Loop thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firearrow.broker.app.fast_path import FastPathSetup
from firearrow.broker.app.foundation import STOP_S, Foundation
from firearrow.broker.app.message_services import MessageServices
from firearrow.broker.app.ports import Ports
from firearrow.broker.app.state import State, make_context
from firearrow.broker.app.store import report_entry_repairs
from firearrow.broker.append.broadcast_offsets import BroadcastOffsets
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.base.disk_space import measured
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.clients import ClientsHandler
from firearrow.broker.handlers.pull import PullHandler
from firearrow.broker.services.compaction import CompactionService
from firearrow.broker.services.retention import Retention
from firearrow.broker.services.stats_timer import StatsTimer
from firearrow.broker.services.thread_watch import LOOK_S
from firearrow.broker.services.timers import Periodic
from firearrow.broker.services.topic_recovery import (
    drop_deleted_queues,
    follow_topic_kinds,
    recover_topics,
    report_static_topics,
    trim_again,
)
from firearrow.broker.tables.subscription_filter import FilterCache

CLIENTS_SWEEP_S, BROADCASTS_SWEEP_S, SYNC_TIMEOUT_SWEEP_S, ACCESS_READ_S = 10, 5, 1, 5
MEMORY_LOOK_S = 1


@dataclass(frozen=True, eq=False, repr=False)
class Services:
    """`fast_path` None: all requests go to the handlers."""

    context: BrokerContext
    messages: MessageServices
    pulls: PullHandler
    broadcasts: BroadcastOffsets
    clients: ClientsHandler
    fast_path: FastPathSetup | None
    compaction: CompactionService
    retention: Retention


def make_services(base: Foundation, state: State, ports: Ports) -> Services:
    """None of them runs yet."""
    context, store_host = make_context(base, state), ports.store_host
    tables, config, clock = context.tables, context.config, context.clock
    filters = FilterCache(config, tables.clients.subscription)
    broadcasts = BroadcastOffsets(context.store, tables.offsets, tables.clients, config, clock)
    pulls = PullHandler(context, filters, broadcasts, base.held_pulls)
    messages = MessageServices(context, filters, store_host)
    base.files.callback(base.lifecycle.save, messages.close)
    messages.listen(base.arrivals)
    fast_path = None
    if config.options.fast_path:
        fast_path = FastPathSetup(
            context,
            store_host,
            pulls,
            base.held_pulls,
            base.server.times,
            state.access.fast_check,
            messages.ack_templates,
        )
    compaction = CompactionService(base.loop, base.store, config, tables.topics)
    base.threads.watch(compaction)
    base.arrivals.listen(compaction.arrived, waiters=compaction.names)
    return Services(
        context,
        messages,
        pulls,
        broadcasts,
        ClientsHandler(tables.topics, tables.groups, tables.clients, filters, config, clock),
        fast_path,
        compaction,
        _make_retention(base, state, compaction.kept),
    )


def _make_retention(base: Foundation, state: State, kept: Callable[[], int]) -> Retention:
    root = base.options.store_root
    log_folder = base.options.commitlog_path or str(Path(root) / "commitlog")
    retention = Retention(
        base.loop,
        base.store,
        base.config,
        base.clock,
        state.tables.trimmed,
        measure=partial(measured, log_folder, root),
        moved=base.arrivals,
        kept=kept,
    )
    base.threads.watch(retention.thread)
    return retention


@asynccontextmanager
async def run_services(
    base: Foundation, state: State, ports: Ports, services: Services, *, is_isolated: bool
) -> AsyncIterator[None]:
    """Restore progress, then run until the stop; then answer what was accepted."""
    async with AsyncExitStack() as started:
        started.push_async_callback(services.compaction.stop)
        started.push_async_callback(_answer_all, base, ports)
        started.callback(services.messages.stop)
        with base.store.whole_log_visible():
            _restore(base, services, is_isolated=is_isolated)
        if base.options.compaction_enabled:
            services.compaction.start(killed=base.killed)
        services.retention.start()
        started.push_async_callback(services.retention.stop)
        started.callback(StatsTimer(base.loop, state.stats, base.clock).stop)
        state.name_server.start(base.loop)
        started.callback(state.name_server.stop)
        periodic = Periodic(base.loop)
        started.callback(periodic.stop)
        _run_periodically(periodic, base, state, services)
        base.config.listen(lambda _: base.memory.look())
        base.memory.report()
        started.callback(base.server.stop_reading)
        yield


def _run_periodically(periodic: Periodic, base: Foundation, state: State, services: Services) -> None:
    periodic.every(ACCESS_READ_S, state.access.read_again)
    periodic.every(CLIENTS_SWEEP_S, services.clients.sweep)
    periodic.every(CLIENTS_SWEEP_S, state.tables.locks.sweep)
    periodic.every(BROADCASTS_SWEEP_S, services.broadcasts.expire)
    periodic.every(SYNC_TIMEOUT_SWEEP_S, base.write_batch.expire)
    periodic.every(MEMORY_LOOK_S, base.server.look_at_memory)
    periodic.every(SYNC_TIMEOUT_SWEEP_S, partial(report_entry_repairs, base.store))
    periodic.every(LOOK_S, base.threads.look)


def _restore(base: Foundation, services: Services, *, is_isolated: bool) -> None:
    """What the log states of topics and of pending work."""
    tables, options, store = services.context.tables, base.options, base.store
    drop_deleted_queues(tables.deleted, store)
    trim_again(tables.trimmed, store)
    # the master may have created topics a moment before a slave took over
    takes_over = not options.is_slave and FollowedLog(store).has_followed()
    if base.killed or takes_over or not tables.topics_loaded:
        version = tables.topics.version
        recover_topics(
            tables.topics,
            store,
            tables.offsets,
            min_queues=options.default_queues if tables.topics_loaded else 1,
            saved_ms=version.timestamp if tables.topics_loaded else 0,
        )
        if options.is_slave:
            tables.topics.version = version  # what the log gets next may be older than these topics
    follow_topic_kinds(tables.topics, store)
    report_static_topics(store.root)
    services.messages.start(
        killed=base.killed,
        works=not options.is_slave and not is_isolated,
        truncated=base.start.truncate_at is not None,
    )


def serve_fast_path(base: Foundation, ports: Ports, services: Services) -> None:
    if services.fast_path is not None:
        ports.fast_handlers.serve(services.fast_path, base.server, ports.vip[1])


def go_online(base: Foundation, ports: Ports, services: Services) -> None:
    """This master, isolated until now, has taken over from its slaves."""
    with base.store.whole_log_visible():
        services.messages.work(killed=base.killed)
    serve_fast_path(base, ports, services)


async def _answer_all(base: Foundation, ports: Ports) -> None:
    """Answer every request that was accepted."""
    base.held_pulls.release_all()
    base.write_batch.commit()
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_S / 2):
            await base.write_batch.settled()
            await ports.drain()
