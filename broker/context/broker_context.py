"""BrokerContext and Tables: what most services and handlers are built from, as frozen values.

`broker.app` builds both and passes them to `broker.handlers` and the services. A class that needs a few of
these objects takes those few; one that would need more than eight arguments takes the whole context. Loop
thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.memory_limits import MemoryLimits
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess
from firearrow.broker.base.stats import Stats
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicTable
from firearrow.broker.tables.trimmed_queues import TrimmedQueues


@dataclass(frozen=True, slots=True)
class Tables:
    """`topics_loaded`: topics.json was loaded, and it was the last one written."""

    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    clients: ClientTable
    locks: RebalanceLocks
    modes: RequestModes
    deleted: DeletedTopics
    trimmed: TrimmedQueues
    topics_loaded: bool

    def configure(self, options: Options) -> None:
        """Set what the tables take from options that can change while the broker runs."""
        self.topics.set_auto_create(options.auto_create_topics)
        self.groups.auto_create = options.auto_create_groups
        self.offsets.version_step = options.offsets_version_step


class Restart(NamedTuple):
    """Stop the broker cleanly and start it again in this process, as for a change of its role. `options`: fields of
    `Options` that change. `truncate_at`: a record's physical offset, where the log is to end."""

    reason: str
    options: Mapping[str, object] = MappingProxyType({})
    truncate_at: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """Constructors take their arguments in this order, tables in the order of `Tables`, other objects before
    `config`, and callbacks last."""

    loop: asyncio.AbstractEventLoop
    store: MessageStore
    write_batch: WriteBatch
    journal: Journal
    saver: TableSaver
    tables: Tables
    config: Config
    clock: Clock
    stats: Stats
    quotas: QuotaCheck
    held_access: HeldAccess
    restart: Callable[[Restart], None]
    memory: MemoryLimits = field(default_factory=MemoryLimits)

    def make_offsets_durable(self) -> None:
        """Sync committed offsets under SYNC_FLUSH, so that they are as durable as messages when answered, and send
        them to the slaves of a pair without waiting for these."""
        self.journal.send_notes()
        if self.config.options.sync_flush:
            self.journal.sync()
