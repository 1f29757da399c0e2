"""MessageServices: builds what handles messages beyond a plain send: delays, timers, transactions, POP.

`app` builds, starts and stops it. At start, progress is loaded from Apache's files first, then from the
journal, which is newer. Loop thread.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from firearrow._native.fastpath.ack_templates import AckTemplates
from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.protocol import name_rules
from firearrow._native.store.log.journal_entries import Entry
from firearrow.broker.app.pop_services import PopServices
from firearrow.broker.app.timer_services import TimerServices
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.delay_levels import DelayService
from firearrow.broker.append.due_routing import DueRouting
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.append.lmq import LmqDispatch
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.append.retry_routing import RetryRouting
from firearrow.broker.base.event_counts import LOWERED
from firearrow.broker.base.message import Message
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.grpc.receipt_table import ReceiptHandleTable
from firearrow.broker.handlers.broker_routes import MessageParts, message_routes
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.replication.wires.firearrow.tables import TableProgress
from firearrow.broker.services.timers import Periodic
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.timers.service import DisabledTimers, TimerService
from firearrow.broker.transactions.service import TransactionService

log = logging.getLogger("firearrow.message_services")

POP_SWEEP_S = 60


class MessageServices:
    def __init__(self, context: BrokerContext, filters: FilterCache, store_host: bytes) -> None:
        options, tables = context.config.options, context.tables
        self._journal = context.journal
        self._saver = context.saver
        self._store, self._offsets = context.store, tables.offsets
        self._rotated = 0
        self.rotated: Callable[[], None] = lambda: None
        """Called when the journal has a new file."""
        self.recovered: list[Entry] = []
        """What the journal had at the start, for a slave's."""
        self._retries = RetryRouting(tables.topics, tables.groups, tables.locks)
        self._appender = Appender(
            context.store,
            context.write_batch,
            context.clock,
            store_host,
            levels=len(options.delay_levels_ms),
            schedule=self._schedule,
            route=DueRouting(tables.topics, self._retries, context.stats.events, context.clock).route,
            multi=LmqDispatch(context.store, lambda: context.config.options.lmq_max).dispatch
            if options.multi_dispatch
            else None,
        )
        self._appender.lowered = lambda topic: context.stats.events.add(LOWERED, (topic,))
        self._timer_services = TimerServices(context, self._appender)
        self._delay_offsets = self._make_delay_offsets(context)
        self._delays = self._make_delays(context)
        self._transactions = TransactionService(context, self._appender)
        timers = self._timer_services.service
        self._pop_services = PopServices(context, self._appender, filters, timers)
        self._routes = message_routes(
            context,
            MessageParts(
                self._appender,
                self._retries,
                self._transactions,
                self._delays,
                self._delay_offsets,
                timers,
                self._timer_services.recall_handle,
            ),
        )
        self._periodic = Periodic(context.loop)
        self._config = context.config
        self._running = ExitStack()
        self._followed = FollowedLog(context.store)
        self._restorers = {
            Kind.OFFSET: tables.offsets.restore,
            Kind.DELAY: self._delays.restore,
            Kind.TIMER: timers.restore,
            Kind.DECIDED: self._transactions.restore,
            Kind.REVIVE: self._pop_services.revive.restore,
        }

    def _make_delay_offsets(self, context: BrokerContext) -> DelayOffsets:
        offsets = DelayOffsets(context.clock, partial(context.saver.changed, "delays"))
        file = ConfigFile(Path(context.config.options.store_root) / "config" / "delayOffset.json")
        context.saver.load("delays", file, offsets, progress=True, periodic=True)
        return offsets

    def _make_delays(self, context: BrokerContext) -> DelayService:
        return DelayService(
            context.loop,
            context.store,
            self._appender,
            context.journal,
            self._delay_offsets,
            context.clock,
            context.stats,
            context.config.options.delay_levels_ms,
        )

    def routes(self) -> list[Routes]:
        return [*self._routes, *self._pop_services.routes()]

    @property
    def timers(self) -> TimerService | DisabledTimers:
        return self._timer_services.service

    @property
    def transactions(self) -> TransactionService:
        return self._transactions

    @property
    def receipts(self) -> ReceiptHandleTable:
        """Of the messages whose invisible time is extended for clients of gRPC."""
        return self._pop_services.receipts

    @property
    def ack_templates(self) -> AckTemplates:
        return self._pop_services.ack_templates

    @property
    def revive(self) -> ReviveService:
        return self._pop_services.revive

    def held_pops(self) -> int:
        """How many pops and notifications wait for messages."""
        return self._pop_services.held()

    def start(self, *, killed: bool, works: bool, truncated: bool = False) -> None:
        """Restore progress; the store is open and the tables are loaded. `works`: resume pending work as well. A slave
        only saves its progress: its master does the work, and puts what comes of it into the log. `truncated`: the log
        has lost its end."""
        self.recovered = self._journal.recover_entries()
        for entry in self.recovered:
            self._restore(entry)
        if truncated:
            self._bound_offsets()
        self._running.callback(self._periodic.stop)
        self._periodic.every(lambda: self._config.options.offsets_save_ms / 1000, self.save_progress)
        self._pop_services.start_expiry()
        self._running.callback(self._pop_services.stop_expiry)
        if self._config.options.is_slave:
            if self.followed_timers is not None:
                self.followed_timers.begin_following()
            return self._followed.follow()
        self._followed.end_following()
        if works:
            self.work(killed=killed)
        return None

    def work(self, *, killed: bool) -> None:
        """Resume pending work, as a master."""
        if killed or self._followed.was_slave:
            self._bound_offsets()
        self._delays.start(self._followed)
        self._running.callback(self._delays.stop)
        self._timer_services.service.start()
        self._running.callback(self._timer_services.service.stop)
        self._transactions.start(self._followed)
        self._running.callback(self._transactions.stop)
        self._pop_services.start()
        self._running.callback(self._pop_services.stop)
        self._periodic.every(POP_SWEEP_S, self._pop_services.sweep)

    def _bound_offsets(self) -> None:
        """Reset offsets past the end of their queue: a power cut may lose messages that were consumed."""
        reset = self._offsets.bound(self._store.reader.max_offset)
        if reset:
            log.info("%d consumer offsets were past the end of their queue and are reset to it", reset)

    def save_progress(self) -> None:
        """Save all progress to its files, then delete the journal files from before the previous call: the
        progress that was still being written then is in the files now."""
        try:
            before, self._rotated = self._rotated, self._journal.rotate()
            self.rotated()
        except OSError as error:
            return log.error("the journal cannot start a new file, will try again: %s", error)
        self._saver.save_changed().add_done_callback(lambda _: self._progress_saved(before))

    def _progress_saved(self, number: int) -> None:
        if not self._saver.failing:
            self._saver.run_in_writer(lambda: self._drop_before(number))

    def _drop_before(self, number: int) -> None:
        try:
            self._journal.drop_before(number)
        except OSError as error:
            log.error("old journal files could not be deleted, will try again: %s", error)

    def stop(self) -> None:
        """Stop all deliveries; messages that are staged are still written."""
        self._running.close()

    def close(self) -> None:
        """Close the timer files; all staged messages are written by now. OSError."""
        self._timer_services.service.close()

    def timer_info(self) -> dict[str, str]:
        """The members of the runtime info about timers and delays."""
        return self._timer_services.service.runtime() | self._delays.info()

    def load_delay_offsets(self, text: bytes) -> None:
        """Replace the offsets of the delay levels by those of delayOffset.json. ValueError."""
        self._delay_offsets.load(text)

    def take_over(self, delays: bytes, check_point: bytes | None) -> tuple[int, bool]:
        """Before work begins: take what a slave delivered in our place (the bodies of GET_ALL_DELAY_OFFSET and
        GET_TIMER_CHECK_POINT); returns how many delay levels moved, and whether the timers did. OSError,
        ValueError."""
        timers = self.followed_timers
        moved = timers is not None and check_point is not None and timers.take_over(check_point)
        return self._delay_offsets.take_over(delays), moved

    def progress(self) -> TableProgress:
        """What slaves of FireArrow's wire copy of the services."""
        timers = self.followed_timers
        return TableProgress(
            delays=self._delay_offsets.to_json,
            follow_delays=self._follow_delays,
            orders=self._pop_services.orders_text,
            follow_orders=self._pop_services.follow_orders,
            receipts=self._pop_services.receipts_text,
            follow_receipts=self.receipts.load,
            check_point=None if timers is None else timers.check_point,
            follow_check_point=None if timers is None else timers.follow,
            restore=self._follow_entry,
        )

    def _follow_delays(self, text: bytes) -> None:
        """As the journal may have older ones of them. ValueError."""
        self._delay_offsets.load(text)
        for level, offset in self._delay_offsets.levels():
            self._journal.note(Kind.DELAY, "", level, offset)

    def _follow_entry(self, entry: Entry) -> None:
        """On a slave: what the services need is in the journal until a start as a master."""
        if entry.kind in (Kind.OFFSET, Kind.DELAY):
            self._restore(entry)

    @property
    def followed_timers(self) -> TimerService | None:
        """The timers that a slave keeps in step with its master's."""
        timers = self._timer_services.service
        return timers if isinstance(timers, TimerService) else None

    def listen(self, arrivals: ArrivalNotifier) -> None:
        if self._config.options.is_slave:
            return
        arrivals.listen(self._delays.messages_arrived, topics=(name_rules.SCHEDULE_TOPIC,))
        arrivals.listen(self._timer_services.service.messages_arrived, topics=(name_rules.TIMER_TOPIC,))
        self._pop_services.listen(arrivals)

    def _schedule(self, message: Message) -> None:
        """Call the timers late: they need the appender, so they are created after it."""
        self._timer_services.schedule(message)

    def _restore(self, entry: Entry) -> None:
        restore = self._restorers.get(Kind(entry.kind))
        if restore is not None:
            restore(entry.name, entry.number, entry.value)
