"""Pops: the composition of POP, a part of `living`: what is taken, what comes back, who waits."""

from collections.abc import Callable
from pathlib import Path

from firearrow._native.path.news import News
from firearrow.broker.filters.selection import Filters
from firearrow.broker.handlers.acks import AcksHandler
from firearrow.broker.handlers.notification import NotificationHandler
from firearrow.broker.handlers.peek import PeekHandler
from firearrow.broker.handlers.pop import PopHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.pop.access import Access
from firearrow.broker.life.pop.acking import Acking
from firearrow.broker.life.pop.holds import ANY_QUEUE, Place, PopHolds
from firearrow.broker.life.pop.openings import Openings
from firearrow.broker.life.pop.orders import QUEUES_MAX, ConsumerOrders
from firearrow.broker.life.pop.popping import Popping
from firearrow.broker.life.pop.revive import ReviveService
from firearrow.broker.parts import Parts
from firearrow.broker.peer import Routes
from firearrow.broker.state import load


class Pops:
    def __init__(
        self, parts: Parts, appender: Appender, filters: Filters, timer_behind: Callable[[], bool]
    ) -> None:
        state, config, clock = parts.state, parts.config, parts.clock
        self._state = state
        self._openings = Openings(parts.loop, clock, self._wake_soon, QUEUES_MAX)
        self._orders = ConsumerOrders(clock, lambda: parts.saver.changed("orders"), self._wake_at)
        folder = Path(config.options.store_root) / "config"
        load(parts.saver, "orders", folder / "consumerOrderInfo.json", self._orders, make=False)
        self._holds, self._notices = (
            PopHolds(
                parts.loop,
                clock,
                lambda: config.options.pops_held_max,
                lambda: config.options.pops_held_of_place,
            )
            for _ in range(2)
        )
        store, orders = parts.store, self._orders
        popping = Popping(store, appender, state.offsets, orders, config, clock, parts.stats)
        acking = Acking(store, appender, state.offsets, orders, config, clock, self._wake_soon)
        access = Access(store, state.topics, state.groups, state.offsets, config)
        self.revive = ReviveService(parts, appender, timer_behind)
        self._handlers = (
            PopHandler(parts, popping, self._holds, filters),
            AcksHandler(store, parts.turn, acking, state.topics, config, parts.keep_offsets),
            NotificationHandler(store, access, orders, self._holds, self._notices, filters, clock),
            PeekHandler(store, access, parts.stats),
        )

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def start(self) -> None:
        self.revive.start()

    def stop(self) -> None:
        self.revive.stop()
        self._holds.release_all()
        self._notices.release_all()
        self._openings.stop()

    def listen(self, news: News) -> None:
        for holds in (self._holds, self._notices):
            news.listen(holds.news, crowd=holds.places)

    def sweep(self) -> None:
        self._orders.sweep(self._state.topics, self._state.groups)

    def _wake_at(self, topic: str, group: str, queue_id: int, at_ms: int) -> None:
        """A queue that is blocked until then is tried again by whoever waits for it."""
        self._openings.at((topic, group, queue_id), at_ms)

    def _wake_soon(self, place: Place) -> None:
        """One that waits for this queue and one that waits for all queues, of pops and of notifications."""
        for holds in (self._holds, self._notices):
            holds.wake_soon(place)
            holds.wake_soon((*place[:2], ANY_QUEUE))
