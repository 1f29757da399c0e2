"""Slave: the parts of a slave put together: its session with the master, its tables, its state. Loop thread."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial

from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.controller.follower import AppointedMaster
from firearrow.broker.replication.failover.acting_master import ActingMaster
from firearrow.broker.replication.failover.master_role import watch_replicas, watch_role
from firearrow.broker.replication.failover.role import BrokerRole
from firearrow.broker.replication.failover.slave_requests import SlaveRequests
from firearrow.broker.replication.log.pair_identity import MASTER_ROLES
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.replication.session.expected_replicas import ExpectedReplica, ExpectedReplicas, Place
from firearrow.broker.replication.session.follower_session import FollowerSession
from firearrow.broker.replication.session.master_api import Master
from firearrow.broker.replication.session.slave_status import State
from firearrow.broker.replication.session.wire import FollowerWire
from firearrow.broker.replication.tables.slave_tables import CopiedProgress, SlaveSynchronize
from firearrow.broker.replication.wires.apache.follower import ApacheFollower
from firearrow.broker.replication.wires.firearrow.follower import (
    FireArrowFollower,
    FollowedParts,
    spoken_version,
)
from firearrow.broker.replication.wires.firearrow.handshake import UNASKED, LogSummary
from firearrow.broker.services.registration import Connect
from firearrow.broker.services.timers import watched

ASK_S = 3.0


def check_slave(options: Options, name_servers: Iterable[Address]) -> None:
    """StartError: a slave has no way to its master."""
    if options.is_slave and not options.controller_mode and not list(name_servers):
        raise StartError(
            "a slave finds its master at a name server of another process: name it with --namesrv HOST:PORT"
        )


class RegisteredMaster:
    """The master that name servers name, Apache's or ours. `role`: of this broker."""

    def __init__(
        self, context: BrokerContext, session: FollowerSession, parts: FollowedParts, role: BrokerRole
    ) -> None:
        self._context = context
        self._session = session
        self._parts = parts
        self.role = role
        self.expected = ExpectedReplicas(context.store.root)
        self._node = ""

    async def wire(self) -> FollowerWire:
        """Our end of a new connection to it. OSError, MasterError."""
        version = await self._version()
        if not version:
            return ApacheFollower(self._session, self._is_firearrow)
        return FireArrowFollower(self._context, self._session, self._parts, version, self._on_joined)

    async def _version(self) -> int:
        """Of FireArrow's wire; 0: the master does not speak it. If no name server takes us, a master at haMasterAddress
        is tried as FireArrow: it reports its address then."""
        master = self._session.master
        if master.address is None and master.ha_address is not None and self._session.naming.fault():
            return UNASKED
        return await spoken_version(master)

    async def _is_firearrow(self) -> bool:
        return await spoken_version(self._session.master) > 0

    def _on_joined(self, summary: LogSummary) -> None:
        """A FireArrow master has taken this slave. OSError."""
        role = "" if summary.member is None else summary.member.role
        self.role.on_joined(summary.epoch, role if role in MASTER_ROLES else "")
        self._node = summary.node.hex()
        master = self._session.master
        if master.address is None and summary.member is not None:
            master.learned(summary.member.address)
        self.expected.follow(self.place)

    @property
    def place(self) -> Place:
        host, port = self._session.master.address or ("", 0)
        return Place(self._node if self._session.pushes_tables else "", 0, host, port)

    def is_us(self, replica: ExpectedReplica) -> bool:
        """Whether this slave is what the master calls so."""
        return replica.node == self._parts.log.identity.node.hex()

    @property
    def tables_copied_ms(self) -> int:
        """When the last table came by the wire; 0: none."""
        return self._parts.tables.copied_ms

    def status(self) -> dict[str, object]:
        """Members of `replication` in /status."""
        return {}


class Slave:
    """`master`: by who names it. `acting` None: without enableSlaveActingMaster."""

    def __init__(
        self,
        context: BrokerContext,
        session: FollowerSession,
        master: RegisteredMaster | AppointedMaster,
        connect: Connect,
        progress: CopiedProgress,
    ) -> None:
        self._loop = context.loop
        self._store = context.store
        self._session = session
        self._followed = master
        self._naming = session.naming
        self._connect = connect
        role = master.role if isinstance(master, RegisteredMaster) else None
        self._fenced = "" if role is None else role.fenced
        context.tables.offsets.not_here = self._fenced
        self.acting: ActingMaster | None = None
        if context.config.options.acting_master:
            self.acting = ActingMaster(context, session.master, session.naming)
        self._synchronize = SlaveSynchronize(
            context, session.master, progress, pushed=lambda: session.pushes_tables
        )
        self._requests = SlaveRequests(
            context.config, session.status, self.acting, lambda: self._store.written, self.lag, self._fenced
        )
        self._runs: list[Callable[[], Coroutine[object, object, None]]] = [
            partial(session.run, master.wire),
            self._synchronize.run,
            partial(watch_replicas, session.master, session.status, self._note_replicas),
        ]
        if role is not None:
            self._runs.append(partial(watch_role, session.master, session.status, role.record_role))
        self._tasks: list[asyncio.Task[None]] = []
        self._master_reported = asyncio.Event()

    def routes(self, master_routes: Iterable[Routes]) -> list[Routes]:
        return self._requests.routes(master_routes)

    def registered(self, ext: Mapping[str, str]) -> None:
        """A name server answered our registration."""
        self.master.registered(ext)
        self._master_reported.set()

    async def ask_for_master(self) -> None:
        """Ask name servers who the master is now: another slave may have been promoted, and one that has just started
        knows none. What is known stays if none answers within ASK_S."""
        self._master_reported.clear()
        self._naming.refresh()
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_S):
                await self._master_reported.wait()

    async def end_at(self, address: Address) -> int:
        """Where the log of another slave ends. OSError, MasterError."""
        other = Master(self._connect, "")
        other.offered(address, address)
        try:
            return (await other.log_range()).end
        finally:
            other.close()

    @property
    def master(self) -> Master:
        return self._session.master

    def _note_replicas(self, replicas: list[ExpectedReplica] | None) -> None:
        """The master's slaves, this one among them."""
        others = None if replicas is None else [each for each in replicas if not self._followed.is_us(each)]
        self._followed.expected.follow(self._followed.place, others)

    @property
    def state(self) -> tuple[State, str]:
        """And its reason."""
        return self._session.status.state, self._session.status.reason

    async def copy_tables(self) -> None:
        """Now; what of them is not copied, the log states."""
        await self._synchronize.copy()

    def start(self) -> None:
        if self._fenced:
            return self._session.status.enter(State.FENCED, self._fenced)
        for run in self._runs:
            self._tasks.append(watched(run(), "a task that follows the master"))
        return None

    async def stop(self) -> None:
        """What was received is whole in the log; the rest is asked for again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.master.close()

    def lag(self) -> ReplicaLag:
        """Against what the master last reported of its log. `in_sync`: we follow it."""
        status = self._session.status
        found = status.master_times.lag(self._store.written, status.master_end, self._loop.time())
        return ReplicaLag(self.master.address, status.state is State.FOLLOWING, found.bytes, found.ms, None)

    def status(self) -> dict[str, object]:
        """The member `replication` of /status."""
        status, lag = self._session.status, self.lag()
        return {
            "role": "SLAVE",
            "acting": self.acting is not None and self.acting.is_acting,
            "state": status.state,
            "reason": status.reason,
            "master": self.master.text,
            "haMaster": status.ha_address,
            "masterEnd": status.master_end,
            "end": self._store.written,
            "behindBytes": lag.bytes,
            "behindMs": lag.ms,
            "receivedBytes": status.bytes_received,
            "skippedLmqs": status.skipped_lmqs,
            "tablesCopiedMs": max(self._synchronize.copied_ms, self._followed.tables_copied_ms),
            "pair": self._session.pushes_tables,
            "tableFaults": {str(code): fault for code, fault in self._synchronize.faults.items()},
            **self._followed.status(),
        }
