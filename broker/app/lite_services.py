"""LiteServices: builds what serves LITE topics: subscriptions, events, pops, expiry.

`pop_services` builds, starts and stops it. Loop thread.
"""

from collections.abc import Iterable
from pathlib import Path

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.lite import LitePopHandler, LiteSubscriptionsHandler
from firearrow.broker.handlers.lite_admin import LiteAdminHandler
from firearrow.broker.lite.acks import LiteAcks
from firearrow.broker.lite.events import LiteEvents
from firearrow.broker.lite.expiry import LiteExpiry
from firearrow.broker.lite.pops import LitePops
from firearrow.broker.lite.service import LiteService
from firearrow.broker.lite.subscriptions import LiteSubscriptions
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.long_polling import HoldKey, PopHoldService
from firearrow.broker.pop.order_info import QUEUES_MAX, ConsumerOrderInfo, OrderUnlockTimer
from firearrow.broker.pop.pop import PopService
from firearrow.broker.services.timers import Periodic
from firearrow.broker.tables.config_file import ConfigFile


class LiteServices:
    def __init__(self, context: BrokerContext, appender: Appender, holds: PopHoldService) -> None:
        tables, store, config, clock = context.tables, context.store, context.config, context.clock
        self._context = context
        self._unlock_timer = OrderUnlockTimer(context.loop, clock, self._unblocked, QUEUES_MAX)
        orders = ConsumerOrderInfo(clock, unlock_at=self._unblocked_at)
        subscriptions = LiteSubscriptions(clock)
        events = LiteEvents(subscriptions, holds)
        self._service = LiteService(
            store,
            tables.offsets,
            tables.clients,
            subscriptions,
            events,
            orders,
            lambda: config.options.lite_subscriptions_max,
        )
        offsets = tables.offsets
        pop_service = PopService(store, appender, offsets, orders, config, clock, context.stats)
        pops = LitePops(pop_service, orders, events, context.stats)
        ack_service = AckService(context, appender, orders, self._unblocked)
        self.acks = LiteAcks(
            store,
            tables.groups,
            config,
            clock,
            ack_service,
            self._service.suspend,
            context.make_offsets_durable,
        )
        self._expiry = LiteExpiry(
            context.loop,
            store,
            tables.topics,
            tables.groups,
            config,
            clock,
            self._forget,
            lambda: context.saver.changed("lite"),
        )
        tables.topics.listen(self._expiry.topics_changed)
        file = ConfigFile(Path(config.options.store_root) / "config" / "liteExpiry.json")
        context.saver.load("lite", file, self._expiry, make=False, periodic=True)
        self._periodic = Periodic(context.loop)
        self._handlers = (
            LiteSubscriptionsHandler(context, self._service),
            LitePopHandler(context, pops, holds),
            LiteAdminHandler(context, self._service),
        )

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def start(self) -> None:
        """Expire lite topics, on a slave as well: its queues are its own."""
        self._expiry.resume()
        options = self._context.config
        self._periodic.every(lambda: options.options.lite_ttl_check_ms / 1000, self._expiry.look)
        self._periodic.every(
            lambda: options.options.lite_subscription_check_ms / 1000, self._expire_subscriptions
        )

    def stop(self) -> None:
        self._periodic.stop()
        self._expiry.stop()
        self._unlock_timer.stop()

    def listen(self, arrivals: ArrivalNotifier) -> None:
        arrivals.listen(self._service.events.arrived, waiters=self._service.subscriptions.queues)

    def sweep(self) -> None:
        tables = self._context.tables
        self._service.orders.sweep(tables.topics, tables.groups)

    def _forget(self, queue: str, groups: Iterable[str]) -> None:
        """A lite topic has expired. A slave gets its master's offsets."""
        if not self._context.config.options.is_slave:
            self._service.forget(queue, groups)

    def _expire_subscriptions(self) -> None:
        expired_ms = self._context.config.options.lite_subscription_expired_ms
        self._service.expire(self._context.clock.now_ms() - expired_ms, self._context.tables.groups)

    def _unblocked_at(self, queue: str, group: str, queue_id: int, at_ms: int) -> None:
        self._unlock_timer.at((queue, group, queue_id), at_ms)

    def _unblocked(self, key: HoldKey) -> None:
        self._service.unblocked(key[1], key[0])
