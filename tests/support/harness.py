"""Harness: a store, a journal, a write batch and an appender in this process, around the service under test.

Its loop and clock advance only when a test moves them. Other harnesses are built on it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import Queue
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.config import Config
from firearrow.broker.base.message import Message
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess
from firearrow.broker.base.stats import Stats
from firearrow.broker.context.broker_context import BrokerContext, Restart, Tables
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import QuotaTable
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicTable
from firearrow.broker.tables.trimmed_queues import TrimmedQueues
from tests.support.clock import NOW_MS, ManualClock
from tests.support.loop import ManualLoop

HOST = host_bytes("127.0.0.1", 10911)


def not_restarted(restart: Restart) -> None:
    """What is under test never asks for it."""
    raise AssertionError(restart.reason)


class Harness:
    """`listeners` are called with the queues that have new messages, as services are; `syncs` counts requested syncs.

    Without `store` it opens one in `folder`, with `levels_ms` as delay levels. The appender refuses timer messages.
    """

    def __init__(
        self,
        folder: Path,
        levels_ms: tuple[int, ...] = (1000, 5000),
        now_ms: int = NOW_MS,
        store: MessageStore | None = None,
        *,
        sync_timeout_ms: int = 5000,
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.timers = ManualLoop(self.clock)
        self.loop = cast(asyncio.AbstractEventLoop, self.timers)
        self.syncs = 0
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
        self._savers: list[TableSaver] = []
        self.listeners: list[Callable[[set[Queue]], None]] = []
        arrivals = ArrivalNotifier()
        arrivals.listen(self._notify, waiters=("all",))
        self.write_batch = WriteBatch(
            self.loop,
            self.store,
            self.clock,
            sync_timeout_ms=sync_timeout_ms,
            arrivals=arrivals,
            request_sync=self._sync_soon,
            full=str,
            journal=self.journal,
        )
        self.appender = Appender(
            self.store, self.write_batch, self.clock, HOST, levels=len(levels_ms), schedule=self._schedule
        )

    def context(
        self,
        options: Options,
        *,
        topics: TopicTable | None = None,
        groups: GroupTable | None = None,
        offsets: ConsumerOffsets | None = None,
        clients: ClientTable | None = None,
    ) -> BrokerContext:
        """What services are built from, around this store; empty tables for those that are not given."""
        offsets = offsets if offsets is not None else ConsumerOffsets(self.clock)
        clients = clients if clients is not None else ClientTable(self.clock)
        tables = Tables(
            topics if topics is not None else TopicTable(self.clock),
            groups if groups is not None else GroupTable(self.clock),
            offsets,
            clients,
            RebalanceLocks(self.clock),
            RequestModes(),
            DeletedTopics(offsets, clients, self.clock),
            TrimmedQueues(),
            topics_loaded=True,
        )
        stats = Stats(options.cluster_name, self.clock.now_ms())
        saver, config = TableSaver(self.loop), Config(options)
        self._savers.append(saver)
        return BrokerContext(
            self.loop,
            self.store,
            self.write_batch,
            self.journal,
            saver,
            tables,
            config,
            self.clock,
            stats,
            QuotaCheck(QuotaTable()),
            HeldAccess(),
            not_restarted,
        )

    def put(self, topic: str, body: bytes = b"x", queue_id: int = 0, **properties: str) -> Message:
        message = Message(topic, queue_id, body, dict(properties), born_ms=self.clock.now_ms())
        self.appender.put(message)
        return message

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Every visible message of a queue."""
        entries = self.store.reader.entries(topic, queue_id, 0, self.store.reader.max_offset(topic, queue_id))
        found: list[Any] = [self.store.reader.record_at(entry.physical_offset) for entry in entries]
        return [decode(record) for record in found]

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]

    def kill(self) -> None:
        """End as a process does by SIGKILL: nothing is flushed."""
        self._end_threads()
        self.journal.close()
        self.store.abandon()

    def close(self) -> None:
        self._end_threads()
        self.journal.close()
        self.store.close()

    def _end_threads(self) -> None:
        for saver in self._savers:
            for thread in saver.threads:
                thread.shutdown()

    def _notify(self, queues: set[Queue]) -> None:
        for listener in self.listeners:
            listener(queues)

    def _sync_soon(self) -> None:
        self.syncs += 1

    @staticmethod
    def _schedule(message: Message) -> None:
        raise AssertionError(f"a timer message for {message.topic}")
