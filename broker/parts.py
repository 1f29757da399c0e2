"""Parts: what the modules of the composition hand to each other; no handler, service or table ever gets it."""

import asyncio
from typing import NamedTuple

from firearrow._native.path.turn import Turn
from firearrow._native.store.store import MessageStore
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.life.journal import Journal
from firearrow.broker.services.saver import Saver
from firearrow.broker.state import State
from firearrow.broker.stats import Stats


class Parts(NamedTuple):
    loop: asyncio.AbstractEventLoop
    store: MessageStore
    turn: Turn
    journal: Journal
    saver: Saver
    state: State
    config: Config
    clock: Clock
    stats: Stats

    def keep_offsets(self) -> None:
        """An answered commit is as durable as an answered message."""
        if self.config.options.sync_flush:
            self.journal.sync()
