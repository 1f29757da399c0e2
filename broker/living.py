"""Living: the composition of `life`, what happens to a message beyond a plain send. `app` builds, starts, stops it.

Progress comes from Apache's files first, then from the journal, which is newer.
"""

import asyncio
import logging
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.handlers.delays import DelaysHandler
from firearrow.broker.handlers.recall import RecallHandler
from firearrow.broker.handlers.replies import RepliesHandler
from firearrow.broker.handlers.send import SendHandler
from firearrow.broker.handlers.sendback import SendBackHandler
from firearrow.broker.handlers.timers import TimersHandler
from firearrow.broker.handlers.transactions import TransactionsHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.delays import DelayService
from firearrow.broker.life.journal import Entry, Journal, Kind
from firearrow.broker.life.lights import Lights
from firearrow.broker.life.retries import Retries
from firearrow.broker.life.timers import rules
from firearrow.broker.life.timers.metrics import TimerMetrics
from firearrow.broker.life.timers.recall import recall_handle
from firearrow.broker.life.timers.service import TimerService
from firearrow.broker.life.transactions.service import TransactionService
from firearrow.broker.peer import Routes
from firearrow.broker.services.periodic import Periodic
from firearrow.broker.services.saver import Saver
from firearrow.broker.services.turn import Turn
from firearrow.broker.state import State, load
from firearrow.broker.stats import Stats
from firearrow.broker.tables.delay_offsets import DelayOffsets

log = logging.getLogger("firearrow.living")

NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class Living:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        turn: Turn,
        journal: Journal,
        saver: Saver,
        state: State,
        config: Config,
        clock: Clock,
        stats: Stats,
        store_host: bytes,
    ) -> None:
        self._journal = journal
        self._turned = 0
        self._saver = saver
        options = config.options
        folder = Path(options.store_root) / "config"
        self._appender = Appender(
            store,
            turn,
            clock,
            store_host,
            levels=len(options.delay_levels_ms),
            schedule=lambda message: rules.schedule(
                message, clock.now_ms(), config.options, self._timers.slot_count if self._timers else _none
            ),
            multi=Lights(store, options.lights_max).dispatch if options.multi_dispatch else None,
        )
        self._retries = Retries(state.topics, state.groups, state.locks)
        self._delay_offsets = DelayOffsets(clock, lambda: saver.changed("delays"))
        load(saver, "delays", folder / "delayOffset.json", self._delay_offsets)
        self._delays = DelayService(
            loop,
            store,
            self._appender,
            journal,
            self._delay_offsets,
            clock,
            stats,
            options.delay_levels_ms,
        )
        self._timer_metrics = TimerMetrics(clock, lambda: saver.changed("timermetrics"))
        load(saver, "timermetrics", folder / "timermetrics", self._timer_metrics, make=False)
        self._timers = self._make_timers(loop, store, config, clock, stats) if options.timer_topic else None
        self._transactions = TransactionService(
            loop,
            store,
            turn,
            self._appender,
            journal,
            state.offsets,
            state.topics,
            state.clients,
            config,
            clock,
            stats,
        )
        self._handlers = (
            SendHandler(
                store,
                turn,
                self._appender,
                state.topics,
                self._retries,
                config,
                clock,
                stats,
                prepare=self._transactions.prepare,
                recall_handle=lambda message: recall_handle(message, config.options.broker_name),
            ),
            SendBackHandler(store, self._appender, self._retries, config, stats),
            RecallHandler(self._appender, state.topics, config, clock, stats),
            TimersHandler(self._timers, self._timer_metrics),
            DelaysHandler(self._delay_offsets),
            TransactionsHandler(self._transactions),
            RepliesHandler(self._appender, state.topics, state.clients, config, clock, stats),
        )
        self._periodic = Periodic(loop)
        self._save_s = options.offsets_save_ms / 1000
        self._restorers = {
            Kind.OFFSET: state.offsets.restore,
            Kind.DELAY: self._delays.restore,
            Kind.DECIDED: self._transactions.restore,
        }
        if self._timers is not None:
            self._restorers[Kind.TIMER] = self._timers.restore

    def _make_timers(
        self, loop: asyncio.AbstractEventLoop, store: MessageStore, config: Config, clock: Clock, stats: Stats
    ) -> TimerService:
        timers = TimerService(
            loop,
            store,
            self._appender,
            self._journal,
            self._timer_metrics,
            config.options,
            clock,
            stats,
            lambda: self._saver.changed("timers"),
        )
        self._saver.add("timers", timers.save)
        return timers

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def start(self) -> None:
        """Take up what was pending; the store and the tables are loaded."""
        for entry in self._journal.take():
            self._restore(entry)
        self._delays.start()
        if self._timers is not None:
            self._timers.start()
        self._transactions.start()
        self._periodic.every(self._save_s, self.keep)

    def keep(self) -> None:
        """Bring all progress to its files, and let go of the journal that was full when this was done last: what was
        on its way to the disk then stands in the files now."""
        try:
            before, self._turned = self._turned, self._journal.turn()
        except OSError as error:
            return log.error("the journal cannot begin a new file: %s", error)
        self._saver.save_changed().add_done_callback(lambda _: self._kept(before))

    def _kept(self, number: int) -> None:
        if not self._saver.failing:
            self._journal.drop_before(number)

    def stop(self) -> None:
        """No more deliveries; what is staged is still written."""
        self._periodic.stop()
        self._delays.stop()
        if self._timers is not None:
            self._timers.stop()
        self._transactions.stop()

    def close(self) -> None:
        """All that was put is written, and the files are saved. OSError."""
        if self._timers is not None:
            self._timers.close()

    def timer_info(self) -> dict[str, str]:
        """What the runtime info says of the timer."""
        return dict(NO_TIMER) if self._timers is None else self._timers.runtime()

    def news(self, queues: set[tuple[str, int]]) -> None:
        """These queues have messages that readers could not see before."""
        self._delays.news(queues)
        if self._timers is not None:
            self._timers.news(queues)

    def _restore(self, entry: Entry) -> None:
        restore = self._restorers.get(Kind(entry.kind))
        if restore is not None:
            restore(entry.name, entry.number, entry.value)


def _none(time_ms: int) -> int:
    return 0
