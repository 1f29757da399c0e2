"""Pops: the composition of POP, a part of `living`: what is taken, what comes back, who waits."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.store import MessageStore
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.handlers.acks import AcksHandler
from firearrow.broker.handlers.pop import PopHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.journal import Journal
from firearrow.broker.life.pop.acking import Acking
from firearrow.broker.life.pop.holds import PopHolds
from firearrow.broker.life.pop.orders import ConsumerOrders
from firearrow.broker.life.pop.popping import Popping
from firearrow.broker.life.pop.revive import ReviveService
from firearrow.broker.peer import Routes
from firearrow.broker.services.saver import Saver
from firearrow.broker.services.turn import Turn
from firearrow.broker.state import State, load
from firearrow.broker.stats import Stats


class Pops:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        turn: Turn,
        appender: Appender,
        journal: Journal,
        saver: Saver,
        state: State,
        config: Config,
        clock: Clock,
        stats: Stats,
        timer_behind: Callable[[], bool],
    ) -> None:
        self._orders = ConsumerOrders(clock, lambda: saver.changed("orders"))
        folder = Path(config.options.store_root) / "config"
        load(saver, "orders", folder / "consumerOrderInfo.json", self._orders, make=False)
        self.holds = PopHolds(
            loop,
            clock,
            lambda: config.options.pops_held_max,
            lambda: config.options.pops_held_of_place,
        )
        popping = Popping(store, appender, state.offsets, self._orders, config, clock, stats)
        acking = Acking(store, appender, state.offsets, self._orders, self.holds, config, clock)
        self.revive = ReviveService(
            loop, store, appender, journal, state.topics, state.groups, state.offsets, config, clock, stats,
            timer_behind,
        )  # fmt: skip
        self._handlers = (
            PopHandler(popping, self.holds, turn, state.topics, state.groups, state.clients, config, clock),
            AcksHandler(store, acking, turn, state.topics, config),
        )

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def start(self) -> None:
        self.revive.start()

    def stop(self) -> None:
        self.revive.stop()
        self.holds.release_all()
