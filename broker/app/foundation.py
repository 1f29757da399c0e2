"""Foundation: what all else stands on: the store and its journal, the threads that sync and save, the server, the
write batch.

It is built first and stopped last. What is written to until then is closed by `files`: after the flusher and the saver
have stopped, in the opposite order of its opening, the store at the end. Loop thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.app.store import close_store, open_journal, open_store
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config, tls_pairs
from firearrow.broker.base.memory_limits import MemoryLimits, Shares
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address
from firearrow.broker.base.process import StopSignals
from firearrow.broker.base.systemd import PassedSockets
from firearrow.broker.context.broker_context import Restart
from firearrow.broker.net.server import Server
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.replication.controller.client import ControllerClient, Role
from firearrow.broker.replication.failover.role import BrokerRole
from firearrow.broker.services.flusher import Flusher
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.services.thread_watch import SYNC_HUNG_S, LogSync, ThreadWatch, WatchedThread
from firearrow.broker.tables.broker_name import remember

log = logging.getLogger("firearrow.app")

STOP_S = 1.0


class Start(NamedTuple):
    """What one start of the broker in this process is given. `naming`: where its name server listens; None: it has
    none. `role`: the one that the store remembers, which the options follow already. `controllers`: with
    enableControllerMode; `appointed`: what they have made of the broker, which the options follow as well.
    `truncate_at`: the log is truncated there."""

    loop: asyncio.AbstractEventLoop
    config: Config
    naming: Address | None
    signals: StopSignals
    passed: PassedSockets
    role: BrokerRole
    controllers: ControllerClient | None
    appointed: Role | None
    truncate_at: int | None


class Lifecycle:
    """Whether this start of the broker is ready, and how it ends."""

    def __init__(self) -> None:
        self.is_ready = False
        self.stopping = asyncio.Event()
        self.restart: Restart | None = None
        """Why the broker starts again when it has stopped."""
        self.unsaved: OSError | None = None
        """Why files are not saved; the journal, which has what they lack, stays valid."""
        self.keep_journal = False
        """The journal stays valid, as a slave's has to: no file has what its entries say."""

    def restart_for(self, restart: Restart) -> None:
        """Stop, and have the broker started again; the first reason counts."""
        if self.restart is None:
            self.restart = restart
            self.stopping.set()

    def save(self, save: Callable[[], None]) -> None:
        """Save at the stop. What cannot be saved stays in the journal."""
        try:
            save()
        except OSError as error:
            log.error("not everything could be saved: %s", error)
            self.unsaved = error


@dataclass(frozen=True, eq=False, repr=False)
class Foundation:
    """`killed`: the broker did not stop cleanly before, or was promoted just now: what its master had not sent yet is
    missing, as after a kill. `files`: closes files at the end. `arrivals`: notifies what waits for messages."""

    start: Start
    lifecycle: Lifecycle
    clock: Clock
    memory: MemoryLimits
    tls: ServerTls
    files: AsyncExitStack
    killed: bool
    store: MessageStore
    journal: Journal
    flusher: Flusher
    saver: TableSaver
    server: Server
    write_batch: WriteBatch
    held_pulls: PullHoldService
    arrivals: ArrivalNotifier
    threads: ThreadWatch

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.start.loop

    @property
    def config(self) -> Config:
        return self.start.config

    @property
    def options(self) -> Options:
        """The current ones."""
        return self.start.config.options

    def set_limits(self, options: Options) -> None:
        self.held_pulls.count_max = options.held_pulls_max
        self.server.idle_s = options.idle_s
        self.write_batch.set_sync_timeout(options.sync_flush_timeout_ms)
        self.store.max_message_bytes = options.max_message_bytes
        self.store.reader.set_limits(
            in_memory_bytes=self.memory.limit * options.in_memory_percent // 100,
            bytes_in_memory=options.bytes_in_memory,
            count_in_memory=options.count_in_memory,
            bytes_on_disk=options.bytes_on_disk,
            count_on_disk=options.count_on_disk,
            filter_bytes=options.filter_bytes,
        )

    def set_memory(self, shares: Shares) -> None:
        self.held_pulls.bytes_max = shares.held_pulls
        self.set_limits(self.options)


@asynccontextmanager
async def foundation(start: Start, lifecycle: Lifecycle) -> AsyncIterator[Foundation]:
    """Lock and recover the store, then start the threads that keep what is acknowledged. StartError."""
    loop, config = start.loop, start.config
    options = config.options
    clock, tls = Clock(), ServerTls(tls_pairs(options))
    memory = MemoryLimits(partial(_explicit_memory, config))
    async with AsyncExitStack() as files, AsyncExitStack() as running:
        killed = (Path(options.store_root) / "abort").exists()
        store, journal = _open(start, lifecycle, files)
        flusher = Flusher(
            loop,
            store,
            sync_flush=options.sync_flush,
            interval_ms=lambda: config.options.flush_interval_ms,
            queue_interval_ms=lambda: config.options.queue_flush_interval_ms,
        )
        saver = TableSaver(loop, partial(_sync_before_save, flusher, journal))
        server = _make_server(start, memory, tls)
        held_pulls = PullHoldService(loop, clock, options.held_pulls_max)
        arrivals = ArrivalNotifier(held_pulls)
        write_batch = WriteBatch(
            server.scheduler,
            store,
            clock,
            sync_timeout_ms=options.sync_flush_timeout_ms,
            arrivals=arrivals,
            request_sync=flusher.request_sync,
            full=_disk_fault,
            journal=journal,
        )
        threads = ThreadWatch(loop, store, partial(_refuse_waiting, write_batch, saver))
        running.callback(lifecycle.save, saver.stop)
        flusher.start(write_batch.synced, threads.ended)
        running.callback(flusher.stop)
        _watch_threads(threads, store, config, [*flusher.threads, *saver.threads])
        running.push_async_callback(server.close, STOP_S)
        tls.start(loop)
        running.callback(tls.stop)
        base = Foundation(
            start,
            lifecycle,
            clock,
            memory,
            tls,
            files,
            killed or start.role.begins,
            store,
            journal,
            flusher,
            saver,
            server,
            write_batch,
            held_pulls,
            arrivals,
            threads,
        )
        config.listen(base.set_limits)
        memory.listen(base.set_memory)
        yield base


def _open(start: Start, lifecycle: Lifecycle, files: AsyncExitStack) -> tuple[MessageStore, Journal]:
    """StartError."""
    options, role = start.config.options, start.role
    role.rebuild(options)
    store = open_store(options, start.truncate_at)
    files.callback(_close_store, store, lifecycle)
    for finding in store.findings:
        log.warning("%s", finding)
    role.open(store.written, is_slave=options.is_slave)
    remember(options)
    journal = open_journal(store)
    files.callback(journal.close)
    return store, journal


def _close_store(store: MessageStore, lifecycle: Lifecycle) -> None:
    close_store(store, unsaved=lifecycle.unsaved, keep_journal=lifecycle.keep_journal)


def _make_server(start: Start, memory: MemoryLimits, tls: ServerTls) -> Server:
    options = start.config.options
    server = Server(
        start.loop,
        idle_s=options.idle_s,
        frame_bytes_max=options.frame_bytes_max,
        use_poller=options.fast_sockets,
        memory=memory,
        passed=start.passed,
        tls=tls,
    )
    server.trust_proxies(options.proxy_networks)
    return server


def _explicit_memory(config: Config) -> dict[str, int]:
    options = config.options
    return {"connections": options.connection_bytes_max, "replies": options.reply_bytes_max}


def _sync_before_save(flusher: Flusher, journal: Journal) -> None:
    """Sync log and journal before a progress file that refers to them. Saver's thread. OSError."""
    flusher.sync_to_disk()
    with suppress(OSError):  # the journal logs it
        journal.sync()


def _refuse_waiting(write_batch: WriteBatch, saver: TableSaver, reason: str) -> None:
    """A thread has ended."""
    write_batch.sync_failed(f"service not available now. {reason}")
    saver.finish()


def _watch_threads(
    threads: ThreadWatch, store: MessageStore, config: Config, keeping: Iterable[WatchedThread]
) -> None:
    """Those that keep what was acknowledged; others are added when they are built."""

    def sync_hung_s() -> float:
        options = config.options
        return SYNC_HUNG_S + 2 * max(options.flush_interval_ms, options.queue_flush_interval_ms) / 1000

    threads.watch(LogSync(store), sync_hung_s, stops_when_hung=True)
    for thread in keeping:
        threads.watch(thread)


def _disk_fault(error: Exception) -> str:
    what = (error.strerror if isinstance(error, OSError) else None) or str(error) or "no memory"
    return f"service not available now. The message could not be written to the disk: {what}"
