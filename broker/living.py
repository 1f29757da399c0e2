"""Living: the composition of `life`, what happens to a message beyond a plain send. `app` builds, starts, stops it.

Progress comes from Apache's files first, then from the journal, which is newer.
"""

import logging
from contextlib import ExitStack
from pathlib import Path

from firearrow._native.path.news import News
from firearrow.broker.filters.selection import Filters
from firearrow.broker.handlers.delays import DelaysHandler
from firearrow.broker.handlers.replies import RepliesHandler
from firearrow.broker.handlers.send import SendHandler
from firearrow.broker.handlers.sendback import SendBackHandler
from firearrow.broker.handlers.transactions import TransactionsHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.delays import DelayService
from firearrow.broker.life.journal import Entry, Kind
from firearrow.broker.life.lights import Lights
from firearrow.broker.life.retries import Retries
from firearrow.broker.life.transactions.service import TransactionService
from firearrow.broker.messages import Message
from firearrow.broker.parts import Parts
from firearrow.broker.peer import Routes
from firearrow.broker.pops import Pops
from firearrow.broker.services.periodic import Periodic
from firearrow.broker.state import load
from firearrow.broker.tables import names
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.timing import Timing

log = logging.getLogger("firearrow.living")

POPS_SWEEP_S = 60


class Living:
    def __init__(self, parts: Parts, filters: Filters, store_host: bytes) -> None:
        options, state = parts.config.options, parts.state
        self._journal = parts.journal
        self._saver = parts.saver
        self._store, self._offsets = parts.store, state.offsets
        self._turned = 0
        self._appender = Appender(
            parts.store,
            parts.turn,
            parts.clock,
            store_host,
            levels=len(options.delay_levels_ms),
            schedule=self._schedule,
            multi=Lights(parts.store, options.lights_max).dispatch if options.multi_dispatch else None,
        )
        self._timing = Timing(parts, self._appender)
        self._delays = self._make_delays(parts)
        self._transactions = TransactionService(parts, self._appender)
        timers = self._timing.service
        self._pops = Pops(parts, self._appender, filters, lambda: timers.is_behind)
        self._own = [*self._sends(parts), TransactionsHandler(self._transactions).routes()]
        self._periodic = Periodic(parts.loop)
        self._config = parts.config
        self._running = ExitStack()
        self._restorers = {
            Kind.OFFSET: state.offsets.restore,
            Kind.DELAY: self._delays.restore,
            Kind.TIMER: timers.restore,
            Kind.DECIDED: self._transactions.restore,
            Kind.REVIVE: self._pops.revive.restore,
        }

    def _make_delays(self, parts: Parts) -> DelayService:
        offsets = DelayOffsets(parts.clock, lambda: parts.saver.changed("delays"))
        options = parts.config.options
        path = Path(options.store_root) / "config" / "delayOffset.json"
        load(parts.saver, "delays", path, offsets, progress=True)
        self._delay_routes = DelaysHandler(offsets).routes()
        return DelayService(
            parts.loop,
            parts.store,
            self._appender,
            parts.journal,
            offsets,
            parts.clock,
            parts.stats,
            options.delay_levels_ms,
        )

    def _sends(self, parts: Parts) -> list[Routes]:
        """What brings messages in."""
        appender, state = self._appender, parts.state
        config, clock, stats = parts.config, parts.clock, parts.stats
        retries = Retries(state.topics, state.groups, state.locks)
        send = SendHandler(
            parts,
            appender,
            retries,
            prepare=self._transactions.prepare,
            recall_handle=self._timing.recall_handle,
        )
        back = SendBackHandler(parts.store, appender, retries, config, stats)
        replies = RepliesHandler(appender, state.topics, state.clients, config, clock, stats)
        return [send.routes(), back.routes(), replies.routes()]

    def routes(self) -> list[Routes]:
        return [*self._own, self._delay_routes, *self._timing.routes(), *self._pops.routes()]

    def start(self, *, killed: bool) -> None:
        """Take up what was pending; the store and the tables are loaded."""
        for entry in self._journal.take():
            self._restore(entry)
        if killed:
            self._bound_offsets()
        self._delays.start()
        self._running.callback(self._delays.stop)
        self._timing.service.start()
        self._running.callback(self._timing.service.stop)
        self._transactions.start()
        self._running.callback(self._transactions.stop)
        self._pops.start()
        self._running.callback(self._pops.stop)
        self._running.callback(self._periodic.stop)
        self._periodic.every(lambda: self._config.options.offsets_save_ms / 1000, self.keep)
        self._periodic.every(POPS_SWEEP_S, self._pops.sweep)

    def _bound_offsets(self) -> None:
        """A power cut took messages back that had been consumed."""
        taken_back = self._offsets.bound(self._store.reader.max_offset)
        if taken_back:
            log.warning(
                "%d offsets of consumers stood behind the end of their queue: taken back to it", taken_back
            )

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
            self._saver.aside(lambda: self._drop_before(number))

    def _drop_before(self, number: int) -> None:
        try:
            self._journal.drop_before(number)
        except OSError as error:
            log.error("old files of the journal stay until the next time: %s", error)

    def stop(self) -> None:
        """No more deliveries of what was started; what is staged is still written."""
        self._running.close()

    def close(self) -> None:
        """All that was put is written, and the files are saved. OSError."""
        self._timing.service.close()

    def timer_info(self) -> dict[str, str]:
        """What the runtime info says of timers and delays."""
        return self._timing.service.runtime() | self._delays.info()

    def listen(self, news: News) -> None:
        news.listen(self._delays.news, topics=(names.SCHEDULE_TOPIC,))
        news.listen(self._timing.service.news, topics=(names.TIMER_TOPIC,))
        self._pops.listen(news)

    def _schedule(self, message: Message) -> None:
        """The appender is there before the timers, which deliver by it."""
        self._timing.schedule(message)

    def _restore(self, entry: Entry) -> None:
        restore = self._restorers.get(Kind(entry.kind))
        if restore is not None:
            restore(entry.name, entry.number, entry.value)
