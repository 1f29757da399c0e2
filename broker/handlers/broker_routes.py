"""broker_routes: the handlers of a broker that need no more than its context and a few services.

Those of messages, POP, timers, users and replication are built with their services. Loop thread.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.base.peer import Address, OpenConnection, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.assignment import AssignmentHandler
from firearrow.broker.handlers.broker_admin import ColdReadsHandler, InspectionHandler, SingleBrokerHandler
from firearrow.broker.handlers.clients import ClientsHandler
from firearrow.broker.handlers.consumer_admin import ConsumersHandler, ProducersHandler, ProgressHandler
from firearrow.broker.handlers.extensions import ConnectionsHandler, LagHandler, RefusedRequests
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
from firearrow.broker.services.retention import Retention
from firearrow.broker.services.route_lookup import RouteLookup


@dataclass(frozen=True, eq=False, repr=False)
class HandlerServices:
    """What these handlers use besides the context. `listening`: the addresses of the broker. `runtime_info`: parts of
    the runtime info. `epoch_cache`: the body of GET_BROKER_EPOCH_CACHE; None: there are no controllers. `status` and
    `history` return JSON."""

    pulls: PullHandler
    clients: ClientsHandler
    arrivals: ArrivalNotifier
    retention: Retention
    routing: RouteLookup
    listening: tuple[Address, ...]
    connections: Callable[[], Collection[OpenConnection]]
    refusals: RefusedRequests
    audit: AuditLog | None
    runtime_info: Sequence[Callable[[], dict[str, str]]]
    epoch_cache: Callable[[], bytes] | None
    status: Callable[[], Awaitable[bytes]]
    history: Callable[[int, int, str], Awaitable[bytes]]


def broker_routes(context: BrokerContext, services: HandlerServices) -> list[Routes]:
    store, tables, config, clock, stats = (
        context.store,
        context.tables,
        context.config,
        context.clock,
        context.stats,
    )
    topics, groups, offsets, clients = tables.topics, tables.groups, tables.offsets, tables.clients
    retention = services.retention
    handlers = (
        services.pulls,
        QueryHandler(store, clients, config, context.quotas),
        services.clients,
        OffsetsHandler(store, topics, groups, offsets, tables.deleted, config, context.make_offsets_durable),
        QueuesHandler(store),
        LocksHandler(tables.locks),
        TopicsHandler(store, topics, offsets, tables.deleted, config, clock, stats),
        GroupsHandler(topics, groups, offsets, config, stats),
        CleaningHandler(
            store,
            topics,
            tables.deleted,
            delete_expired=retention.delete_expired,
            clean_queues=retention.clean_queues,
        ),
        ResetsHandler(store, topics, groups, offsets, clients, config),
        ConsumersHandler(store, topics, groups, offsets, clients, config),
        ProducersHandler(clients, clock),
        AssignmentHandler(topics, groups, clients, tables.modes, config, services.routing.queues),
        ProgressHandler(store, topics, groups, offsets, clients, config, clock, stats),
        InspectionHandler(store, config, clock, stats, services.runtime_info),
        MachineHandler(services.listening, clients, config, clock, stats),
        ColdReadsHandler(),
        SingleBrokerHandler(config, services.epoch_cache),
        TrimHandler(context, moved=services.arrivals, free=retention.free_trimmed),
        LagHandler(context),
        QuotasHandler(context.quotas, services.audit),
        ConnectionsHandler(
            clients,
            clock,
            services.refusals,
            connections=services.connections,
            loop_time=context.loop.time,
        ),
        StatusHandler(clock, services.status, services.history),
    )
    return [handler.routes() for handler in handlers]
