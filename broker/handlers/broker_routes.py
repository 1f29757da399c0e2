"""The handlers of a broker, built from its context and services: `message_routes` of sends, delays, timers and
transactions, `pop_routes` of POP, `broker_routes` all others but those of access and replication. Loop thread.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.delay_levels import DelayService
from firearrow.broker.append.retry_routing import RetryRouting
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.base.message import Message
from firearrow.broker.base.peer import Address, OpenConnection, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.acks import AcksHandler
from firearrow.broker.handlers.assignment import AssignmentHandler
from firearrow.broker.handlers.broker_admin import ColdReadsHandler, InspectionHandler, SingleBrokerHandler
from firearrow.broker.handlers.clients import ClientsHandler
from firearrow.broker.handlers.connections import ConnectionsHandler, RefusedRequests
from firearrow.broker.handlers.consumer_admin import ConsumersHandler, ProducersHandler, ProgressHandler
from firearrow.broker.handlers.end_transaction import TransactionsHandler
from firearrow.broker.handlers.group_lag import LagHandler
from firearrow.broker.handlers.groups import GroupsHandler
from firearrow.broker.handlers.host_status import MachineHandler
from firearrow.broker.handlers.lock_queues import LocksHandler
from firearrow.broker.handlers.offsets import OffsetsHandler, QueuesHandler
from firearrow.broker.handlers.overview import OverviewHandler
from firearrow.broker.handlers.pop import PeekHandler, PopHandler
from firearrow.broker.handlers.pop_notification import NotificationHandler
from firearrow.broker.handlers.pull import PullHandler
from firearrow.broker.handlers.query import QueryHandler
from firearrow.broker.handlers.quotas import QuotasHandler
from firearrow.broker.handlers.reply_messages import RepliesHandler
from firearrow.broker.handlers.reset_offsets import ResetsHandler
from firearrow.broker.handlers.send import SendHandler
from firearrow.broker.handlers.send_back import SendBackHandler
from firearrow.broker.handlers.status import StatusHandler
from firearrow.broker.handlers.timers import DelaysHandler, RecallHandler, TimersHandler
from firearrow.broker.handlers.topics import CleaningHandler, TopicsHandler
from firearrow.broker.handlers.trim_topic import TrimHandler
from firearrow.broker.handlers.waiting_messages import (
    HalfMessagesHandler,
    PendingTimersHandler,
    PopInFlightHandler,
)
from firearrow.broker.lite.acks import LiteAcks
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.long_polling import PopHoldService
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.permissions import PopPermissions
from firearrow.broker.pop.pop import PopService
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.services.retention import Retention
from firearrow.broker.services.route_lookup import RouteLookup
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.timers.service import DisabledTimers, TimerService
from firearrow.broker.transactions.service import TransactionService


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
        MachineHandler(services.listening, context),
        ColdReadsHandler(),
        SingleBrokerHandler(config, services.epoch_cache),
        TrimHandler(context, moved=services.arrivals, free=retention.free_trimmed),
        LagHandler(context),
        OverviewHandler(store, topics, groups, offsets, clients, clock),
        QuotasHandler(context.quotas, services.audit),
        ConnectionsHandler(
            clients,
            clock,
            services.refusals,
            broker_ports={port for _, port in services.listening},
            connections=services.connections,
            loop_time=context.loop.time,
        ),
        StatusHandler(clock, services.status, services.history),
    )
    return [handler.routes() for handler in handlers]


class MessageParts(NamedTuple):
    """What the handlers of messages use. `recall_handle(message)`: of a timer message; None: it cannot be recalled."""

    appender: Appender
    retries: RetryRouting
    transactions: TransactionService
    delays: DelayService
    delay_offsets: DelayOffsets
    timers: TimerService | DisabledTimers
    recall_handle: Callable[[Message], str | None]


def message_routes(context: BrokerContext, parts: MessageParts) -> list[Routes]:
    appender, retries, transactions, delays, delay_offsets, timers, recall_handle = parts
    topics, clients, store = context.tables.topics, context.tables.clients, context.store
    config, clock, stats = context.config, context.clock, context.stats
    prepare = transactions.prepare
    replies = RepliesHandler(appender, topics, clients, config, clock, stats)
    context.memory.listen(replies.set_memory)
    handlers = (
        SendHandler(context, appender, retries, prepare=prepare, recall_handle=recall_handle),
        SendBackHandler(store, appender, retries, config, stats, context.quotas, topics),
        replies,
        TransactionsHandler(transactions),
        HalfMessagesHandler(transactions),
        DelaysHandler(delay_offsets),
        PendingTimersHandler(context, timers, delays),
        RecallHandler(appender, topics, config, clock, stats),
        TimersHandler(timers),
    )
    return [handler.routes() for handler in handlers]


class PopParts(NamedTuple):
    """What the handlers of POP use. `holds`, `notification_holds`: the requests that wait."""

    pops: PopService
    acks: AckService
    permissions: PopPermissions
    orders: ConsumerOrderInfo
    holds: PopHoldService
    notification_holds: PopHoldService
    filters: FilterCache
    revive: ReviveService
    timers: TimerService | DisabledTimers
    lite_acks: LiteAcks


def pop_routes(context: BrokerContext, parts: PopParts) -> list[Routes]:
    pops, acks, permissions, orders, holds, notification_holds, filters, revive, timers, lite_acks = parts
    store, topics, config = context.store, context.tables.topics, context.config
    handlers = (
        PopHandler(context, pops, holds, filters),
        AcksHandler(
            store, context.write_batch, acks, topics, config, lite_acks, context.make_offsets_durable
        ),
        NotificationHandler(
            store,
            permissions,
            orders,
            holds,
            notification_holds,
            filters,
            context.clock,
            context.held_access,
        ),
        PeekHandler(store, permissions, context.stats, context.quotas),
        PopInFlightHandler(context, timers, orders, revive),
    )
    return [handler.routes() for handler in handlers]
