"""ReplicaRegistry: the slaves of a master: those that are connected, by any wire, those that were refused, and those
that are expected. A slave that was in sync once is expected until an operator removes it, connected or not.

Loop thread.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.peer import counted_address
from firearrow.broker.replication.log.replica_lag import Lag, LogTimes, ReplicaLag
from firearrow.broker.replication.session.expected_replicas import ExpectedReplicas
from firearrow.broker.replication.session.wire import SenderWire

log = logging.getLogger("firearrow.replication")

SLAVES_MAX = 64
NEWCOMERS_MAX = 64
"""Most connections that have not asked for the log yet, or not proved that they know the secret."""
REFUSALS_MAX = 64
LOG_AGAIN_S = 60.0


@dataclass(slots=True, eq=False)
class Replica:
    """A connected slave. `in_sync`: its copy counts. `target`, `target_at`: the log's end at a time: a slave that has
    so much soon after is in sync; 0: it has not asked for the log yet. `rate`: bytes sent in the last second."""

    wire: SenderWire
    in_sync: bool = False
    target: int = 0
    target_at: float = 0.0
    counted_bytes: int = 0
    rate: int = 0


class ReplicaRegistry:
    """`registered()`: the hosts of slaves that registered with the name server of this process. `messages()`: how many
    clients have sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        config: Config,
        clock: Clock,
        registered: Callable[[], Collection[str]],
        messages: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._store = store
        self._config = config
        self._clock = clock
        self._registered = registered
        self._messages = messages
        self._started_ms = clock.now_ms()
        self.expected = ExpectedReplicas(store.root)
        self._replicas: dict[SenderWire, Replica] = {}
        self._refused: dict[str, dict[str, object]] = {}
        self._logged: dict[str, tuple[str, float]] = {}
        self._times = LogTimes()

    # ---- connections ----

    @property
    def all(self) -> list[Replica]:
        return list(self._replicas.values())

    @property
    def in_sync(self) -> list[Replica]:
        return [each for each in self._replicas.values() if each.in_sync]

    @property
    def copying(self) -> list[Replica]:
        """Those that have asked for the log."""
        return [each for each in self._replicas.values() if each.wire.end >= 0]

    def evict_newcomer(self) -> None:
        """At the limit, close a newcomer, of the address that has most: connecting alone uses none of SLAVES_MAX."""
        newcomers = [wire for wire in self._replicas if wire.is_newcomer]
        if len(newcomers) >= NEWCOMERS_MAX:
            hosts = [counted_address(wire.traffic.remote[0]) for wire in newcomers]
            most = max(hosts, key=hosts.count)
            newcomers[hosts.index(most)].close(f"{NEWCOMERS_MAX} connections have not asked for the log yet")

    def add(self, wire: SenderWire) -> None:
        self._replicas[wire] = Replica(wire)

    def replace(self, wire: SenderWire, other: SenderWire) -> None:
        """The first byte was of another wire."""
        del self._replicas[wire]
        self.add(other)

    def of(self, wire: SenderWire) -> Replica:
        return self._replicas[wire]

    def asks(self, replica: Replica) -> None:
        """It asks for the log for the first time."""
        wire = replica.wire
        self._refused.pop(wire.traffic.remote[0], None)
        place = wire.place
        self.expected.connected(wire, place)
        self.set_target(replica)
        number = f"{place.broker_id} at " if place.broker_id else ""
        log.info("slave %s%s:%d copies the log from %d on", number, *wire.traffic.remote, wire.end)

    def set_target(self, replica: Replica) -> None:
        replica.target, replica.target_at = self._store.written, self._loop.time()

    def remove(self, wire: SenderWire, why: str, state: str) -> None:
        """`why`: it was refused; empty: it left or was silent."""
        self._replicas.pop(wire, None)
        traffic = wire.traffic
        if why:
            self.refuse(*traffic.remote, why, state)
        elif wire.end >= 0:
            log.info("slave %s:%d left at %d", *traffic.remote, wire.end)
        silent = self._loop.time() - traffic.last_read >= self._config.options.ha_housekeeping_ms / 1000
        later = [other for other in self._replicas if silent and other.traffic.began > traffic.last_read]
        self.expected.left(wire, wire.end, self._clock.now_ms(), later)

    # ---- who may copy the log ----

    def fault_of(self, host: str, *, has_proof: bool | None = None, joining: bool = True) -> str:
        """Why no slave at this address may have the log; empty if it may. `has_proof`: whether its wire proves that it
        knows the secret, None: not known yet."""
        if joining and sum(not wire.is_newcomer for wire in self._replicas) >= SLAVES_MAX:
            return f"{SLAVES_MAX} slaves are connected already"
        allowed = self._config.options.ha_allowed_networks
        address = ipaddress.ip_address(host)
        if allowed:
            known = any(address in network for network in allowed)
        elif self._config.options.ha_secret:
            if has_proof is False:
                return f"it does not prove that it knows haSecret: set haAllowedAddresses={host} for a slave of Apache"
            known = True
        else:
            known = address.is_loopback or host in self._registered()
        if known:
            return ""
        return (
            f"no slave is known at this address: set haAllowedAddresses={host} to let it copy the log, or register the "
            "slave with the name server in this process"
        )

    def refuse(self, host: str, port: int, why: str, state: str = "") -> None:
        """Note it for the status, and log it once a minute."""
        now = self._loop.time()
        self._refused.pop(host, None)
        if len(self._refused) >= REFUSALS_MAX:
            del self._refused[next(iter(self._refused))]
        entry = {"addr": f"{host}:{port}", "reason": why, "atMs": self._clock.now_ms()}
        self._refused[host] = entry | {"state": state} if state else entry
        counted, reason = counted_address(host), why.replace(host, "")
        before, at = self._logged.get(counted, ("", 0.0))
        if before != reason or now - at >= LOG_AGAIN_S:
            self._logged.pop(counted, None)
            if len(self._logged) >= REFUSALS_MAX:
                del self._logged[next(iter(self._logged))]
            self._logged[counted] = reason, now
            log.error("replication to %s:%d refused: %s", host, port, why)

    def refused(self) -> list[dict[str, object]]:
        """The last slave of each address that got nothing, and why; the newest last."""
        return list(self._refused.values())

    # ---- lags ----

    def measure(self) -> None:
        """Once a second."""
        self._times.note(self._store.written, self._loop.time(), self._messages())
        for replica in self._replicas.values():
            sent = replica.wire.traffic.sent_bytes
            replica.rate, replica.counted_bytes = sent - replica.counted_bytes, sent

    def lag(self, end: int) -> Lag:
        """Of a log that ends there."""
        return self._times.lag(end, self._store.written, self._loop.time(), self._messages())

    def _lags(self) -> list[tuple[Replica, Lag]]:
        return [(each, self.lag(each.wire.end)) for each in self.copying]

    def connections(self) -> list[dict[str, object]]:
        """The slaves, as GET_BROKER_HA_STATUS lists them."""
        return [
            {
                "addr": "{}:{}".format(*replica.wire.traffic.remote),
                "slaveAckOffset": replica.wire.end,
                "diff": lag.bytes,
                "inSync": replica.in_sync,
                "transferFromWhere": replica.wire.sent,
                "transferredByteInSecond": replica.rate,
                "lagMs": lag.ms,
                "lagMessages": lag.messages,
                **replica.wire.details(),
            }
            for replica, lag in self._lags()
        ]

    def replicas(self) -> list[ReplicaLag]:
        """The slaves that copy the log."""
        found = []
        for replica, lag in self._lags():
            known = self.expected.of(replica.wire)
            names = ("", "") if known is None else (known.host, self.expected.name_of(known))
            found.append(ReplicaLag(replica.wire.traffic.remote, replica.in_sync, *lag, *names))
        return found

    def expected_replicas(self) -> list[ReplicaLag]:
        """These, and those that are expected to."""
        missing = [
            ReplicaLag(None, False, *self.lag(each.end), each.host, self.expected.name_of(each))
            for each in self.expected.missing()
        ]
        return [*self.replicas(), *missing]

    # ---- those that are expected ----

    @property
    def never_joined(self) -> int:
        """How many slaves there must be, by the options or an older version's store, of which nothing is known."""
        options = self._config.options
        waits = options.broker_role == "SYNC_MASTER"
        wanted = max(options.in_sync_replicas, options.min_in_sync_replicas) if waits else 1
        unexpected = sum(self.expected.of(each.wire) is None for each in self.copying)
        known = len(self.expected.all) + unexpected
        unknown = self.expected.unknown - self.expected.new - unexpected
        return max(max(options.total_replicas, wanted) - 1 - known, unknown, 0)

    def members(self) -> list[dict[str, object]]:
        """All that are expected, as GET_BROKER_HA_STATUS lists them. `reason`: why one is not connected."""
        missing = {id(each) for each in self.expected.missing()}
        return [
            {
                **asdict(each),
                "name": self.expected.name_of(each),
                "connected": id(each) not in missing,
                "reason": each.why_missing(self._started_ms) if id(each) in missing else "",
            }
            for each in self.expected.all
        ]

    def missing(self) -> list[str]:
        """Names of those that are not connected, and how many never joined."""
        absent = [self.expected.name_of(each) for each in self.expected.missing()]
        return absent + ([f"{self.never_joined} that never joined"] if self.never_joined else [])

    def forget(self, name: str) -> str:
        """Expect the missing slave of this name no more, without a name those of which nothing is known; why not,
        empty: it is done."""
        if name:
            if self.expected.forget(name):
                return ""
            known = ", ".join(self.expected.name_of(each) for each in self.expected.missing()) or "none"
            return f"no slave of the name {name[:80]!r} is missing; missing are: {known}"
        if self.expected.forget_unknown():
            return ""
        return (
            "every slave that never joined is one that totalReplicas or inSyncReplicas asks for: change these"
        )
