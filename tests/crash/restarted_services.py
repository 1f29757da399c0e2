"""RestartedServices: a broker's services on an existing folder, set up as `app` does it, with a manual clock.

No sockets, no threads: tables, journal, store and all of `services`; config files are written at once. One thread.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.message_services import MessageServices
from firearrow.broker.app.store import open_store
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.config import Config, apply
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess
from firearrow.broker.base.stats import Stats
from firearrow.broker.context.broker_context import BrokerContext, Tables
from firearrow.broker.context.tables import make_tables
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import QuotaTable
from firearrow.broker.services.table_saver import SavedTable, TableSaver
from firearrow.broker.services.topic_recovery import recover_topics
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.timers.service import TimerService
from tests.support.clock import ManualClock
from tests.support.harness import HOST, ManualLoop, not_restarted
from tests.support.peers import RecordedPeer

PRODUCERS = "PG"


class Written:
    """A future that is done."""

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        callback(self)


class DirectSaver(TableSaver):
    """Writes in the loop's thread, synchronously."""

    def _save(self, table: SavedTable) -> None:
        table.timer = None
        changes = table.changes
        table.save()
        table.tried = table.written = changes

    def run_in_writer(self, work: Callable[[], None]) -> None:
        work()

    def save_changed(self) -> asyncio.Future[bool]:
        for table in self._tables.values():
            if table.changed:
                self._save(table)
        return cast("asyncio.Future[bool]", Written())


class RestartedServices:
    """`producer` gets the checks of open transactions. The constructor raises errors of a start and closes all."""

    def __init__(self, root: Path, settings: dict[str, str], now_ms: int) -> None:
        options = apply(Options(store_root=str(root)), settings)
        self._config = Config(options)
        self.clock = ManualClock(now_ms)
        self.loop = ManualLoop(self.clock)
        self._plain = cast(asyncio.AbstractEventLoop, self.loop)
        killed = (root / "abort").exists()
        self.store = open_store(options)
        self.producer = RecordedPeer()
        self._journal: Journal | None = None
        self.services: MessageServices | None = None
        try:
            self._journal = Journal(root / "journal", self.store.run, self.store.written)
            self.tables, self.services = self._made(options, self._journal)
            self._start(options, self.services, killed=killed)
        except BaseException:
            self.kill()
            raise

    def _made(self, options: Options, journal: Journal) -> tuple[Tables, MessageServices]:
        saver = DirectSaver(self._plain)
        tables = make_tables(options, self.clock, saver, journal)
        arrivals = ArrivalNotifier()
        self._write_batch = write_batch = WriteBatch(
            self._plain,
            self.store,
            self.clock,
            sync_timeout_ms=5000,
            arrivals=arrivals,
            request_sync=self._sync_soon,
            full=str,
            journal=journal,
        )
        stats = Stats(options.cluster_name, self.clock.now_ms())
        context = BrokerContext(
            self._plain,
            self.store,
            write_batch,
            journal,
            saver,
            tables,
            self._config,
            self.clock,
            stats,
            QuotaCheck(QuotaTable()),
            HeldAccess(),
            not_restarted,
        )
        services = MessageServices(context, FilterCache(self._config, tables.clients.subscription), HOST)
        services.listen(arrivals)
        return tables, services

    def _start(self, options: Options, services: MessageServices, *, killed: bool) -> None:
        tables = self.tables
        recover_topics(
            tables.topics,
            self.store,
            tables.offsets,
            min_queues=options.default_queues if tables.topics_loaded else 1,
            saved_ms=tables.topics.version.timestamp if tables.topics_loaded else 0,
        )
        member = Member("producer", self.producer, 0, 400, self.clock.monotonic_ms())
        tables.clients.note_producer(PRODUCERS, member)
        self._routes = {code: route for routes in services.routes() for code, route in routes.items()}
        services.start(killed=killed, works=True)

    def _sync_soon(self) -> None:
        self.loop.call_soon(self._sync)

    def _sync(self) -> None:
        self._write_batch.synced(self.store.sync())

    # ---- use ----

    def run(self, for_ms: int) -> None:
        self.loop.run(for_ms)

    def step(self, count: int) -> None:
        for _ in range(count):
            self.loop.step()

    def ask(self, code: RequestCode, ext: dict[str, str]) -> RemotingCommand | None:
        """The response, if it does not wait for the end of the write batch."""
        answer = self._routes[code](RemotingCommand(code, ext), self.producer)
        assert answer is None or isinstance(answer, RemotingCommand)
        return answer

    def asked(self) -> list[tuple[RemotingCommand, Record]]:
        """The transaction checks since the last call, and the half messages in them."""
        requests, self.producer.requests = self.producer.requests, []
        return [(request, decode(request.body)) for request in requests]

    def decide(self, request: RemotingCommand, *, commit: bool) -> None:
        """Answer a check."""
        ext = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": request.ext["tranStateTableOffset"],
            "commitLogOffset": request.ext["commitLogOffset"],
            "commitOrRollback": "8" if commit else "12",
            "fromTransactionCheck": "true",
            "msgId": "x",
        }
        self.ask(RequestCode.END_TRANSACTION, ext)

    def records(self, topic: str) -> list[Record]:
        """Of all queues."""
        found = []
        for name, queue_id in self.store.reader.queues():
            if name == topic:
                low, high = (
                    self.store.reader.min_offset(topic, queue_id),
                    self.store.reader.max_offset(topic, queue_id),
                )
                for entry in self.store.reader.entries(topic, queue_id, low, high - low):
                    record = self.store.reader.record_at(entry.physical_offset)
                    if record is not None:
                        found.append(decode(record))
        return found

    def bodies(self, topic: str) -> Counter[bytes]:
        return Counter(record.body for record in self.records(topic))

    # ---- end ----

    def kill(self) -> None:
        """As the process would end by SIGKILL."""
        if self.services is not None:
            self.services.stop()
            _close_files(self.services)
        if self._journal is not None:
            self._journal.close()
        self.store.abandon()


def _close_files(services: MessageServices) -> None:
    """The timer's, as at the end of a process."""
    service = services._timer_services.service
    if isinstance(service, TimerService):
        files = service._timer_files
        for part in (files.checkpoint, files.wheel, files.log):
            part.close()
