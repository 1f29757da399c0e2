"""A store, a turn and an appender around the service under test; loop and clock stand still until told."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from firearrow._native.path.holds import Queue
from firearrow._native.path.news import News
from firearrow._native.path.turn import Turn
from firearrow._native.store.record import Record, decode
from firearrow._native.store.store import MessageStore, StoreConfig
from firearrow.broker.clock import ManualClock
from firearrow.broker.config import Config
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.journal import Journal
from firearrow.broker.messageids import host_bytes
from firearrow.broker.messages import Message
from firearrow.broker.options import Options
from firearrow.broker.parts import Parts, State
from firearrow.broker.services.saver import Saver
from firearrow.broker.stats import Stats
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicTable

HOST = host_bytes("127.0.0.1", 10911)


class Timer:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualLoop:
    """What services use of a loop; `run` advances the clock from timer to timer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> Timer:
        timer = Timer(lambda: callback(*args))
        at = self._clock.monotonic_ms() + max(seconds, 0) * 1000
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self.call_later(0, callback, *args)

    def run(self, for_ms: int = 0) -> None:
        """Everything that is due within so long, in order."""
        until = self._clock.monotonic_ms() + for_ms
        while self._timers and self._timers[0][0] <= until:
            self.step()
        self._clock.advance(max(0, until - self._clock.monotonic_ms()))

    def step(self) -> None:
        """The next thing alone, if there is any."""
        if not self._timers:
            return
        at, _, timer = heapq.heappop(self._timers)
        self._clock.advance(max(0, int(-(-at // 1)) - self._clock.monotonic_ms()))
        if timer.call is not None:
            timer.call()


class Room:
    """`listeners` hear the news of queues, as services do."""

    def __init__(
        self,
        folder: Path,
        levels_ms: tuple[int, ...] = (1000, 5000),
        now_ms: int = 1_700_000_000_000,
        store: MessageStore | None = None,
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.timers = ManualLoop(self.clock)
        self.loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.store = store or MessageStore.open(
            folder,
            StoreConfig(
                segment_bytes=1 << 20,
                queue_file_bytes=20_000,
                index_slots=100,
                index_entries=400,
                delay_levels_ms=levels_ms,
            ),
        )
        self.journal = Journal(folder / "journal", self.store.run, self.store.written)
        self.listeners: list[Callable[[set[Queue]], None]] = []
        news = News()
        news.listen(self._news, crowd=("all",))
        self.turn = Turn(
            self.loop, self.store, self.clock, sync_timeout_ms=5000, news=news,
            sync_soon=lambda: None, full=str, journal=self.journal,
        )  # fmt: skip
        self.appender = Appender(
            self.store, self.turn, self.clock, HOST, levels=len(levels_ms), schedule=self._no_timers
        )

    def parts(
        self,
        options: Options,
        *,
        topics: TopicTable | None = None,
        groups: GroupTable | None = None,
        offsets: ConsumerOffsets | None = None,
        clients: ClientTable | None = None,
    ) -> Parts:
        """What services are built from, around this store; empty tables for those that are not given."""
        state = State(
            topics if topics is not None else TopicTable(self.clock),
            groups if groups is not None else GroupTable(self.clock),
            offsets if offsets is not None else ConsumerOffsets(self.clock),
            clients if clients is not None else ClientTable(self.clock),
            RebalanceLocks(self.clock),
            RequestModes(),
            topics_loaded=True,
        )
        stats = Stats(options.cluster_name, self.clock.now_ms())
        saver, config = Saver(self.loop), Config(options)
        return Parts(self.loop, self.store, self.turn, self.journal, saver, state, config, self.clock, stats)

    def put(self, topic: str, body: bytes = b"x", queue_id: int = 0, **properties: str) -> Message:
        message = Message(topic, queue_id, body, dict(properties), born_ms=self.clock.now_ms())
        self.appender.put(message)
        return message

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All messages of a queue that readers may see."""
        entries = self.store.reader.entries(topic, queue_id, 0, self.store.reader.max_offset(topic, queue_id))
        found: list[Any] = [self.store.reader.record_at(entry.physical_offset) for entry in entries]
        return [decode(record) for record in found]

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]

    def kill(self) -> None:
        """As the process would end by SIGKILL."""
        self.journal.close()
        self.store.abandon()

    def close(self) -> None:
        self.journal.close()
        self.store.close()

    def _news(self, queues: set[Queue]) -> None:
        for listener in self.listeners:
            listener(queues)

    @staticmethod
    def _no_timers(message: Message) -> None:
        raise AssertionError(f"a timer message came for {message.topic}")
