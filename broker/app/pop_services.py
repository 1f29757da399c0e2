"""PopServices: builds POP: taking, acknowledging and reviving messages, held requests, and the receipt handles that are
renewed.

`message_services` builds, starts and stops it. Loop thread.
"""

from pathlib import Path

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow.broker.app.lite_services import LiteServices
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.memory_limits import Shares
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.grpc.receipt_table import FILE_NAME, ReceiptHandleTable
from firearrow.broker.handlers.broker_routes import PopParts, pop_routes
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.long_polling import ANY_QUEUE, HoldKey, PopHoldService
from firearrow.broker.pop.order_info import QUEUES_MAX, ConsumerOrderInfo, OrderUnlockTimer
from firearrow.broker.pop.permissions import PopPermissions
from firearrow.broker.pop.pop import PopService
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.timers.service import DisabledTimers, TimerService

RECEIPTS_PUSHED_MAX = 2048
"""Receipt handles that are copied to slaves: a copy of 2048 takes some 10 ms of the loop."""


class PopServices:
    def __init__(
        self,
        context: BrokerContext,
        appender: Appender,
        filters: FilterCache,
        timers: TimerService | DisabledTimers,
    ) -> None:
        tables, config, clock = context.tables, context.config, context.clock
        self._tables = tables
        self._unlock_timer = OrderUnlockTimer(context.loop, clock, self._retry_held_soon, QUEUES_MAX)
        self._order_info = ConsumerOrderInfo(clock, lambda: context.saver.changed("orders"), self._wake_at)
        file = ConfigFile(Path(config.options.store_root) / "config" / "consumerOrderInfo.json")
        context.saver.load("orders", file, self._order_info, make=False, periodic=True)
        self._hold_service, self._notification_holds, self._lite_holds = (
            PopHoldService(
                context.loop,
                clock,
                lambda: config.options.pops_held_max,
                lambda: config.options.pops_held_per_queue_max,
            )
            for _ in range(3)
        )
        self.receipts = ReceiptHandleTable(clock, lambda: context.saver.changed("receipts"))
        self._lite = LiteServices(context, appender, self._lite_holds)
        context.memory.listen(self._set_memory)
        self._load_receipts(context)
        store, orders = context.store, self._order_info
        pop_service = PopService(store, appender, tables.offsets, orders, config, clock, context.stats)
        ack_service = AckService(context, appender, orders, self._retry_held_soon)
        self.ack_templates = ack_service.templates
        permissions = PopPermissions(store, tables.topics, tables.groups, tables.offsets, config)
        self.revive = ReviveService(context, appender, lambda: timers.is_late)
        self._routes = pop_routes(
            context,
            PopParts(
                pop_service,
                ack_service,
                permissions,
                orders,
                self._hold_service,
                self._notification_holds,
                filters,
                self.revive,
                timers,
                self._lite.acks,
            ),
        )

    def _load_receipts(self, context: BrokerContext) -> None:
        file = ConfigFile(Path(context.config.options.store_root) / "config" / FILE_NAME)
        context.saver.load(
            "receipts",
            file,
            self.receipts,
            make=False,
            progress=True,
            periodic=True,
            pieces=self.receipts.pieces,
        )

    def _set_memory(self, shares: Shares) -> None:
        self.receipts.bytes_max = shares.receipt_handles
        holds = self._hold_service, self._notification_holds, self._lite_holds
        for each in holds:
            each.bytes_max = shares.held_pops // len(holds)

    def routes(self) -> list[Routes]:
        return [*self._routes, *self._lite.routes()]

    def start(self) -> None:
        self.revive.start()

    def start_expiry(self) -> None:
        """Lite topics expire at a master and at its slaves."""
        self._lite.start()

    def stop_expiry(self) -> None:
        self._lite.stop()

    def stop(self) -> None:
        self.revive.stop()
        self._hold_service.release_all()
        self._notification_holds.release_all()
        self._lite_holds.release_all()
        self._unlock_timer.stop()

    def listen(self, arrivals: ArrivalNotifier) -> None:
        for hold_service in (self._hold_service, self._notification_holds):
            arrivals.listen(hold_service.messages_arrived, waiters=hold_service.keys)
        self._lite.listen(arrivals)

    def orders_text(self) -> bytes:
        """consumerOrderInfo.json."""
        return self._order_info.to_json()

    def follow_orders(self, text: bytes) -> None:
        """On a slave: take the master's. ValueError."""
        self._order_info.load(text)

    def receipts_text(self) -> bytes:
        """receiptHandles.json for slaves; empty if making it would hold up clients."""
        return self.receipts.to_json() if len(self.receipts) <= RECEIPTS_PUSHED_MAX else b""

    def held(self) -> int:
        return len(self._hold_service) + len(self._notification_holds) + len(self._lite_holds)

    def sweep(self) -> None:
        self._order_info.sweep(self._tables.topics, self._tables.groups)
        self._lite.sweep()

    def _wake_at(self, topic: str, group: str, queue_id: int, at_ms: int) -> None:
        """At that time the queue is no longer blocked: retry the requests that are held for it."""
        self._unlock_timer.at((topic, group, queue_id), at_ms)

    def _retry_held_soon(self, key: HoldKey) -> None:
        """Retry one request held for this queue and one held for all queues, of pops and of notifications."""
        for hold_service in (self._hold_service, self._notification_holds):
            hold_service.retry_held_soon(key)
            hold_service.retry_held_soon((*key[:2], ANY_QUEUE))
