"""Sources: what the metrics, the status and the history read. Built by `broker/app`; nothing here changes it.

Loop thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from firearrow._native.base.histogram import Histogram
from firearrow._native.fastpath.fast_dispatch import RequestCounters
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow.broker.base.peer import GRPC, REMOTING, Address
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.net.server import Server
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.services.flusher import Flusher
from firearrow.broker.services.registration import Registrar
from firearrow.broker.services.retention import Retention
from firearrow.broker.services.thread_watch import ThreadWatch
from firearrow.broker.timers.service import DisabledTimers, TimerService
from firearrow.broker.transactions.service import TransactionService


@dataclass(frozen=True, eq=False, repr=False)
class Sources:
    """`counters`: None if all requests take the complete way. `held_pops()`: how many pops wait. `in_progress()`: how
    many requests are being handled. `renewals()`: messages whose invisible time is extended for clients of gRPC, and
    how many could not be since the start. `ready()`, `stopping()`: the state of the process. `replication()`: the
    state of replication; None: there is none. `replicas()`: the slaves that copy our log or are expected to;
    `never_joined()`: how many more are, of which nothing is known. `write_fault()`: why a master takes no sends; empty:
    it does. `followed()`: ourselves as a slave."""

    context: BrokerContext
    server: Server
    flusher: Flusher
    retention: Retention
    threads: ThreadWatch
    registrar: Registrar
    held_pulls: PullHoldService
    held_pops: Callable[[], int]
    in_progress: Callable[[], int]
    timers: TimerService | DisabledTimers
    transactions: TransactionService
    revive: ReviveService
    renewals: Callable[[], tuple[int, int]]
    counters: RequestCounters | None
    address: Address
    ready: Callable[[], bool]
    stopping: Callable[[], bool]
    replication: Callable[[], dict[str, object]] | None
    replicas: Callable[[], list[ReplicaLag]]
    never_joined: Callable[[], int]
    write_fault: Callable[[], str]
    followed: Callable[[], ReplicaLag] | None

    def request_times(self) -> Iterator[tuple[str, int, int, bool, bool, Histogram]]:
        """As RequestTimes.all, of each protocol: first its name."""
        server = self.server
        for protocol, times in ((REMOTING, server.times), (GRPC, server.grpc_times)):
            for each in times.all():
                yield protocol, *each

    def unready(self) -> str | None:
        """Why the broker does not serve clients as far as it knows by itself, in a sentence; None if it does."""
        store = self.context.store
        if self.stopping():
            return "the broker is stopping"
        if not self.ready():
            return "the broker is starting"
        if fault := self.threads.fault():
            return fault
        if not store.writable:
            return "the store takes no messages since the disk failed a write: repair the disk and restart the broker"
        if store.full is not None:
            return f"the disk is nearly full ({store.full}): free disk space"
        if fault := self.context.saver.fault():
            return fault
        if fault := self.write_fault():
            return fault
        if not self.registrar.is_registered:
            return "no name server has this broker: check namesrvAddr and its servers"
        return None
