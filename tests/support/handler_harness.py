"""HandlerHarness: the common handlers over real tables, a FakeStore and recorded peers.

Start-up topics are those of the broker whose answers were recorded.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.handlers.clients import ClientsHandler
from firearrow.broker.handlers.groups import GroupsHandler
from firearrow.broker.handlers.lock_queues import LocksHandler
from firearrow.broker.handlers.offsets import OffsetsHandler, QueuesHandler
from firearrow.broker.handlers.reset_offsets import ResetsHandler
from firearrow.broker.handlers.topics import CleaningHandler, TopicsHandler
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.tables.topics import TopicSettings, TopicTable
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


@dataclass
class Entry:
    physical_offset: int


@dataclass
class FakeStore:
    """Queues as lists of store times. `begins` cuts a queue's head; `near`: all is near the log's end."""

    times: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    near: bool = True
    min_physical: int = 0
    dropped: list[str] = field(default_factory=list)
    written: int = 1000

    @property
    def reader(self) -> "FakeStore":
        return self

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.begins.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.times.get((topic, queue_id), ()))

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        times = self.times.get((topic, queue_id), [])
        return times[queue_offset] if 0 <= queue_offset < len(times) else -1

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        times = self.times.get((topic, queue_id), [])
        return (
            sum(time <= timestamp_ms for time in times) - 1
            if upper
            else sum(time < timestamp_ms for time in times)
        )

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[Entry]:
        end = self.max_offset(topic, queue_id)
        return [Entry(1000 + n) for n in range(queue_offset, min(end, queue_offset + count))]

    def is_near_end(self, physical_offset: int) -> bool:
        return self.near

    def queues(self) -> list[tuple[str, int]]:
        return list(self.times)

    def queue_ends(self, topic: str) -> dict[int, int]:
        return {queue_id: len(times) for (name, queue_id), times in self.times.items() if name == topic}

    def write(self) -> int:
        return self.written

    def drop_topic(self, topic: str) -> int:
        self.dropped.append(topic)
        return 1


class Handler(Protocol):
    def routes(self) -> Routes: ...


class HandlerHarness:
    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        self.clock = ManualClock()
        self.asked: list[str] = []
        self.config = Config(dataclasses.replace(Options(broker_name="broker-a"), **options))
        self.fake = FakeStore()
        store = cast(MessageStore, self.fake)
        self.topics = TopicTable(
            self.clock, TopicSettings(broker="broker-a", default_queues=4, trace_topic=True)
        )
        self.groups = GroupTable(self.clock)
        self.offsets = ConsumerOffsets(self.clock)
        self.table = ClientTable(self.clock)
        self.deleted = DeletedTopics(self.offsets, self.table, self.clock)
        self.locks = RebalanceLocks(self.clock)
        self.stats = Stats("DefaultCluster", self.clock.now_ms())
        filters = FilterCache(self.config, self.table.subscription)
        self.clients = ClientsHandler(self.topics, self.groups, self.table, filters, self.config, self.clock)
        self.serve(
            self.clients,
            OffsetsHandler(
                store,
                self.topics,
                self.groups,
                self.offsets,
                self.deleted,
                self.config,
                make_durable=lambda: None,
            ),
            QueuesHandler(store),
            LocksHandler(self.locks),
            TopicsHandler(
                store, self.topics, self.offsets, self.deleted, self.config, self.clock, self.stats
            ),
            GroupsHandler(self.topics, self.groups, self.offsets, self.config, self.stats),
            ResetsHandler(store, self.topics, self.groups, self.offsets, self.table, self.config),
            CleaningHandler(
                store,
                self.topics,
                self.deleted,
                delete_expired=lambda: self.asked.append("delete expired"),
                clean_queues=lambda: self.asked.append("clean queues"),
            ),
        )

    def serve(self, *handlers: Handler) -> None:
        self.dispatch = Dispatch([handler.routes() for handler in handlers])

    def ask(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        peer: RecordedPeer | None = None,
        language: int = 0,
        version: int = 513,
    ) -> RemotingCommand:
        """Send a request through dispatch and wait for its answer."""
        texts = {key: str(value) for key, value in (ext or {}).items()}
        request = RemotingCommand(code, texts, body, opaque=7, language=language, version=version)
        return self.hand(request, peer or RecordedPeer())

    def hand(self, request: RemotingCommand, peer: RecordedPeer) -> RemotingCommand:
        async def run() -> None:
            self.dispatch(request, peer)
            await self.dispatch.drain()

        before = len(peer.replies)
        asyncio.run(run())
        assert len(peer.replies) == before + 1
        assert peer.replies[-1].opaque == request.opaque
        return peer.replies[-1]
