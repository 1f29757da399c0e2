"""Slave: the parts of a slave put together: its client of the log, its tables, its state. Loop thread."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.replication.follower import Follower
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.failover.acting_master import ActingMaster
from firearrow.broker.replication.failover.master_role import MasterReplicas, MasterRole
from firearrow.broker.replication.failover.role import PairRole
from firearrow.broker.replication.failover.slave_requests import SlaveRequests
from firearrow.broker.replication.log.confirmed_offset import ConfirmedLog
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.replication.session.expected_replicas import ExpectedReplica, ExpectedReplicas, Place
from firearrow.broker.replication.session.master_api import Master, Naming, SlaveStatus, State
from firearrow.broker.replication.slave_client import HAClient
from firearrow.broker.replication.tables.slave_tables import CopiedProgress, SlaveSynchronize
from firearrow.broker.replication.wires.firearrow.follower import FollowedParts, PairClient
from firearrow.broker.replication.wires.firearrow.handshake import Facts
from firearrow.broker.services.registration import Connect

log = logging.getLogger("firearrow.slave")

ASK_S = 3.0


def check_slave(options: Options, name_servers: Iterable[Address]) -> None:
    """StartError: a slave has no way to its master."""
    if options.is_slave and not options.controller_mode and not list(name_servers):
        raise StartError(
            "a slave finds its master at a name server of another process: name it with --namesrv HOST:PORT"
        )


class Slave:
    """`connect` opens a connection to the master's remoting port. `acting` None: without enableSlaveActingMaster.
    `parts` None: it never speaks our own wire. `role` None: controllers report what it is."""

    def __init__(
        self,
        context: BrokerContext,
        arrivals: ArrivalNotifier,
        *,
        connect: Connect,
        naming: Naming,
        progress: CopiedProgress,
        parts: FollowedParts | None,
        role: PairRole | None = None,
    ) -> None:
        self._expected = ExpectedReplicas(context.store.root)
        self._master_node = ""
        self._fenced = "" if role is None else role.fenced
        context.tables.offsets.not_here = self._fenced
        self._pair: PairClient | None = None
        self._loop = context.loop
        self._store = context.store
        self._status = SlaveStatus()
        self._confirmed_log = ConfirmedLog(context.store, arrivals)
        self._naming = naming
        options = context.config.options
        self._connect = connect
        self._master = self._make_master(connect, options)
        self.acting: ActingMaster | None = None
        if options.acting_master:
            self.acting = ActingMaster(context, self._master, refresh=naming.refresh, look=naming.look)
        self._parts = parts
        self._client = self._make_client(context)
        self._synchronize = SlaveSynchronize(
            context, self._master, progress, pushed=lambda: self._client.follows_pair
        )
        self._requests = SlaveRequests(
            context.config, self._status, self.acting, lambda: self._store.written, self.lag, self._fenced
        )
        replicas = MasterReplicas(self._master, self._status, self._note_replicas)
        self._runs = [self._client.run, self._synchronize.run, replicas.run]
        if role is not None:
            self._runs.append(MasterRole(self._master, self._status, role.heard_master_role).run)
        self._tasks: list[asyncio.Task[None]] = []
        self._master_reported = asyncio.Event()

    def _make_master(self, connect: Connect, options: Options) -> Master:
        return Master(connect, options.ha_master_address, leaves=options.acting_master)

    def _make_client(self, context: BrokerContext) -> HAClient:
        follower = Follower(context.store)
        pair = None
        if self._parts is not None:
            pair = PairClient(context, self._parts, follower, self._status, self._confirmed_log)
        self._pair = pair
        return HAClient(
            context, self._master, self._status, self._confirmed_log, self._naming, pair, follower
        )

    def routes(self, master_routes: Iterable[Routes]) -> list[Routes]:
        return self._requests.routes(master_routes)

    def registered(self, ext: Mapping[str, str]) -> None:
        """A name server answered our registration."""
        self._master.registered(ext)
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
        return self._master

    def joined(self, master: Facts) -> None:
        """A FireArrow master has taken this slave."""
        self._master_node = master.node.hex()
        if self._master.address is None and master.member is not None:
            self._master.learned(master.member.address)
        self._expected.follow(self._master_place())

    def _master_place(self) -> Place:
        host, port = self._master.address or ("", 0)
        return Place(self._master_node if self._client.follows_pair else "", 0, host, port)

    def _note_replicas(self, replicas: list[ExpectedReplica] | None) -> None:
        """The master's slaves, this one among them."""
        others = None if replicas is None else [each for each in replicas if not self._is_us(each)]
        self._expected.follow(self._master_place(), others)

    def _is_us(self, replica: ExpectedReplica) -> bool:
        return self._parts is not None and replica.node == self._parts.log.identity.node.hex()

    @property
    def state(self) -> tuple[State, str]:
        """And its reason."""
        return self._status.state, self._status.reason

    async def copy_tables(self) -> None:
        """Now; what of them is not copied, the log states."""
        await self._synchronize.copy()

    def start(self) -> None:
        if self._fenced:
            return self._status.enter(State.FENCED, self._fenced)
        for run in self._runs:
            task = asyncio.ensure_future(run())
            task.add_done_callback(_ended)
            self._tasks.append(task)
        return None

    async def stop(self) -> None:
        """What was received is whole in the log; the rest is asked for again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._master.close()

    @property
    def keeps_journal(self) -> bool:
        """Whether the journal has what no file has: steps of the master's that a promotion must not repeat."""
        return self._pair is not None and self._pair.has_followed

    def lag(self) -> ReplicaLag:
        """Against what the master last reported of its log. `in_sync`: we follow it."""
        status = self._status
        found = status.master_times.lag(self._store.written, status.master_end, self._loop.time())
        return ReplicaLag(self._master.address, status.state is State.FOLLOWING, found.bytes, found.ms, None)

    def status(self) -> dict[str, object]:
        """The member `replication` of /status."""
        status, address, lag = self._status, self._master.address, self.lag()
        return {
            "role": "SLAVE",
            "acting": self.acting is not None and self.acting.is_acting,
            "state": status.state,
            "reason": status.reason,
            "master": "" if address is None else "{}:{}".format(*address),
            "haMaster": status.ha_address,
            "masterEnd": status.master_end,
            "end": self._store.written,
            "behindBytes": lag.bytes,
            "behindMs": lag.ms,
            "receivedBytes": status.bytes_received,
            "skippedLmqs": status.skipped_lmqs,
            "tablesCopiedMs": max(
                self._synchronize.copied_ms, 0 if self._parts is None else self._parts.tables.copied_ms
            ),
            "pair": self._client.follows_pair,
            "tableFaults": {str(code): fault for code, fault in self._synchronize.faults.items()},
        }


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the slave has stopped following its master: restart the broker", exc_info=error)
