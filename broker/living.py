"""Living: the composition of `life`, what happens to a message beyond a plain send. `app` builds, starts, stops it.

Progress comes from Apache's files first, then from the journal, which is newer.
"""

import asyncio
import logging
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.filters.selection import Filters
from firearrow.broker.handlers.delays import DelaysHandler
from firearrow.broker.handlers.replies import RepliesHandler
from firearrow.broker.handlers.send import SendHandler
from firearrow.broker.handlers.sendback import SendBackHandler
from firearrow.broker.handlers.transactions import TransactionsHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.delays import DelayService
from firearrow.broker.life.journal import Entry, Journal, Kind
from firearrow.broker.life.lights import Lights
from firearrow.broker.life.retries import Retries
from firearrow.broker.life.transactions.service import TransactionService
from firearrow.broker.peer import Routes
from firearrow.broker.pops import Pops
from firearrow.broker.services.periodic import Periodic
from firearrow.broker.services.saver import Saver
from firearrow.broker.services.turn import Turn
from firearrow.broker.state import State, load
from firearrow.broker.stats import Stats
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.timing import Timing

log = logging.getLogger("firearrow.living")

POPS_SWEEP_S = 60


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
        filters: Filters,
        store_host: bytes,
    ) -> None:
        self._journal = journal
        self._turned = 0
        self._saver = saver
        options = config.options
        folder = Path(options.store_root) / "config"
        self._timing = Timing(config, clock)
        self._appender = Appender(
            store,
            turn,
            clock,
            store_host,
            levels=len(options.delay_levels_ms),
            schedule=self._timing.schedule,
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
        self._timing.build(loop, store, self._appender, journal, saver, state, stats)
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
        self._pops = Pops(
            loop,
            store,
            turn,
            self._appender,
            journal,
            saver,
            state,
            config,
            clock,
            stats,
            filters,
            self._timing.is_behind,
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
                recall_handle=self._timing.recall_handle,
            ),
            SendBackHandler(store, self._appender, self._retries, config, stats),
            DelaysHandler(self._delay_offsets),
            TransactionsHandler(self._transactions),
            RepliesHandler(self._appender, state.topics, state.clients, config, clock, stats),
        )
        self._periodic = Periodic(loop)
        self._save_s = options.offsets_save_ms / 1000
        self._restorers = {
            Kind.OFFSET: state.offsets.restore,
            Kind.DELAY: self._delays.restore,
            Kind.TIMER: self._timing.restore,
            Kind.DECIDED: self._transactions.restore,
            Kind.REVIVE: self._pops.revive.restore,
        }

    def routes(self) -> list[Routes]:
        own = [handler.routes() for handler in self._handlers]
        return [*own, *self._timing.routes(), *self._pops.routes()]

    def start(self) -> None:
        """Take up what was pending; the store and the tables are loaded."""
        for entry in self._journal.take():
            self._restore(entry)
        self._delays.start()
        self._timing.start()
        self._transactions.start()
        self._pops.start()
        self._periodic.every(self._save_s, self.keep)
        self._periodic.every(POPS_SWEEP_S, self._pops.sweep)

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
        self._timing.stop()
        self._transactions.stop()
        self._pops.stop()

    def close(self) -> None:
        """All that was put is written, and the files are saved. OSError."""
        self._timing.close()

    def timer_info(self) -> dict[str, str]:
        """What the runtime info says of the timer."""
        return self._timing.info()

    def news(self, queues: set[tuple[str, int]]) -> None:
        """These queues have messages that readers could not see before."""
        self._delays.news(queues)
        self._timing.news(queues)
        self._pops.news(queues)

    def _restore(self, entry: Entry) -> None:
        restore = self._restorers.get(Kind(entry.kind))
        if restore is not None:
            restore(entry.name, entry.number, entry.value)
