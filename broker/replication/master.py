"""HAService: the replication port of a master: its slaves, which of them are in sync, and their status. Loop thread.

Slaves that only follow (ASYNC_MASTER) get the log at most every millisecond, which costs senders little; slaves for
which sends wait (SYNC_MASTER) get each write at once.

A slave is in sync once it has what the log had at most slaveTimeout ago. One that does not acknowledge a record within
slaveTimeout, or that is haMaxGapNotInSync bytes behind, is out until it is in sync again: one time-out, not one a
message. With ASYNC_MASTER, where no send waits, the time is at least LATE_S. A slave that was in sync once is expected
until an operator removes it, connected or not.
"""

import asyncio
import errno
import ipaddress
import logging
import math
import socket
from collections.abc import Callable, Collection
from dataclasses import asdict

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, counted_address, ip_text
from firearrow.broker.net.acceptor import Listener
from firearrow.broker.net.server import ONLY_TLS
from firearrow.broker.net.tls import FIRST_BYTE, ServerTls
from firearrow.broker.replication.log.confirmed_offset import (
    Confirmed,
    CopiesNeeded,
    confirmed_at,
    confirmed_by,
    has_caught_up,
)
from firearrow.broker.replication.log.replica_lag import Lag, LogTimes, ReplicaLag
from firearrow.broker.replication.session.expected_replicas import ExpectedReplicas, Place
from firearrow.broker.replication.session.master_api import address_or_none
from firearrow.broker.replication.wires.apache.sender import HAConnection
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC, RefusalCode, secret_fault
from firearrow.broker.replication.wires.firearrow.sender import PairConnection
from firearrow.broker.replication.wires.firearrow.shipment import PairMaster, PairParts
from firearrow.broker.services.timers import Periodic

log = logging.getLogger("firearrow.replication")

SLAVES_MAX = 64
NEWCOMERS_MAX = 64
"""Most connections that have not asked for the log yet, or not proved that they know the secret."""
REFUSALS_MAX = 64
HANDSHAKE_S = 10.0
SlaveConnection = HAConnection | PairConnection
STATES: dict[int, str] = {RefusalCode.DIVERGED: "diverged", RefusalCode.BEHIND: "behind the log"}
PACE_S, TICK_S, RATES_S, LOG_AGAIN_S = 0.001, 0.1, 1.0, 60.0
EXPECTED_AFTER_S = 2.0
"""In sync without a break: who connects and leaves keeps no place among REPLICAS_MAX."""
LATE_S = 2.0
"""The log's past is noted each RATES_S, so a lag in time is known no better."""


class HAService:
    """`registered()`: the hosts of slaves that registered with the name server of this process. `messages()`: how many
    clients have sent."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        write_batch: WriteBatch,
        config: Config,
        clock: Clock,
        registered: Callable[[], Collection[str]],
        messages: Callable[[], int],
        tls: ServerTls,
    ) -> None:
        self._loop = loop
        self._expected = ExpectedReplicas(store.root)
        self._started_ms = clock.now_ms()
        self._store = store
        self._write_batch = write_batch
        self._config = config
        self._clock = clock
        self._registered = registered
        self._messages = messages
        self._tls = tls
        self._pair: PairMaster | None = None
        self._waits = config.options.broker_role == "SYNC_MASTER"
        self._slaves: dict[SlaveConnection, int] = {}
        """Each with what was sent to it before the last second, in bytes."""
        self._rates: dict[SlaveConnection, int] = {}
        self._refused: dict[str, dict[str, object]] = {}
        self._logged: dict[str, tuple[str, float]] = {}
        self._listener: Listener | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._planned = self._is_stopping = False
        self._confirmed: Confirmed | None = None
        self._starts_until = 0.0
        """Until then readers wait for slaves that were there before the start; inf: slaves are not served yet; 0:
        readers wait for those in sync."""
        self._copies = CopiesNeeded()
        self._times = LogTimes()
        self._periodic = Periodic(loop)
        self.start_offset = store.written
        """The log's end at the start (Apache: brokerInitMaxOffset)."""

    # ---- start and stop ----

    async def start(self, host: str, port: int, *, option: str) -> Address:
        """Listen, but serve slaves only from `start_serving` on; returns the address. StartError names `option`."""
        try:
            self._listener = await Listener.bind(self._loop, host, port, self._accept)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            why = "is in use" if in_use else f"cannot be opened ({error.strerror or error})"
            raise StartError(
                f"the replication port {port} on {host} {why}: choose another one with {option}"
            ) from None
        self._write_batch.replicate(self._written, waits=self._waits)
        confirmed, written = self._store.reader.confirmed, self._store.written
        if confirmed < written:
            self._starts_until = math.inf
            log.info(
                "readers see the log up to %d, not to %d: the rest was not confirmed before the start, and is shown "
                "once enough brokers have it",
                confirmed,
                written,
            )
        self._config.listen(self._configure)
        self._measure()
        self._periodic.every(TICK_S, self._tick)
        self._periodic.every(RATES_S, self._measure)
        address: Address = self._listener.sockets[0].getsockname()[:2]
        return address

    def start_serving(self) -> None:
        assert self._listener is not None
        self._listener.start_serving()
        if self._starts_until > 0:  # the start may have taken longer than that
            self._starts_until = self._loop.time() + self._config.options.slave_timeout_ms / 1000

    def stop(self) -> None:
        """Send what the sockets take, and close."""
        self._is_stopping = True
        self._periodic.stop()
        if self._listener is not None:
            self._listener.close()
        for slave in list(self._slaves):
            slave.send()
            if isinstance(slave, PairConnection):
                slave.finish()
            slave.close()
        for task in self._handshakes:
            task.cancel()

    @property
    def serves_pairs(self) -> bool:
        """Slaves of our own wire are served."""
        return self._pair is not None

    def join_pairs(self, parts: PairParts) -> None:
        """From now on, slaves of our own wire are served, and get our tables; while we are isolated, the log alone."""
        self._pair = PairMaster(
            self._loop,
            self._store,
            self._clock,
            parts,
            connections=lambda: [each for each in self._slaves if isinstance(each, PairConnection)],
            confirmed=self._confirmed_at,
            acknowledged=self._acknowledged,
            left=self._pair_left,
        )

    def go_online(self) -> None:
        """No longer isolated."""
        if self._pair is not None:
            self._pair.go_online()

    def _configure(self, options: Options) -> None:
        self._copies = CopiesNeeded(
            options.in_sync_replicas,
            options.min_in_sync_replicas,
            options.auto_in_sync_replicas,
            options.acting_master,
        )
        self._write_batch.set_read_unconfirmed(self._waits and options.read_unconfirmed)
        self._confirm()

    # ---- connections ----

    def _accept(self, accepted: socket.socket) -> None:
        try:
            host, port = accepted.getpeername()[:2]
            fault = self._fault_of(host)
            if fault:
                self._refuse(host, port, fault)
                return accepted.close()
            self._evict_newcomer()
            slave = self._make_connection(accepted)
        except OSError:  # it has disconnected already
            return accepted.close()
        self._slaves[slave] = 0
        return None

    def _evict_newcomer(self) -> None:
        """At the limit, close a newcomer, of the address that has most: connecting alone uses none of SLAVES_MAX."""
        newcomers = [slave for slave in self._slaves if slave.is_newcomer]
        if len(newcomers) >= NEWCOMERS_MAX:
            hosts = [counted_address(slave.remote[0]) for slave in newcomers]
            most = max(hosts, key=hosts.count)
            newcomers[hosts.index(most)].close(f"{NEWCOMERS_MAX} connections have not asked for the log yet")

    def _make_connection(self, accepted: socket.socket) -> HAConnection:
        return HAConnection(
            self._loop,
            accepted,
            self._store,
            piece_bytes=lambda: self._config.options.ha_piece_bytes,
            begins=self._begins,
            acknowledged=self._acknowledged,
            closed=self._left,
        )

    def _begins(self, slave: HAConnection, first: int) -> bool:
        """The first byte decides the wire: whether it is Apache's. Ours is served from here on, with TLS or without."""
        host = slave.remote[0]
        is_tls = first == FIRST_BYTE and self._tls.listening is not None
        if is_tls or first == MAGIC[0]:
            fault = self._pair_fault(host, is_tls=is_tls)
            if not fault:
                self._serve_pair(slave, is_tls=is_tls)
                return False
        else:
            fault = self._plain_fault() or self._fault_of(host, has_proof=False, joining=False)
        if fault:
            slave.close(fault)
        return not fault

    def _plain_fault(self) -> str:
        is_refused = self._tls.listening is not None and self._tls.enforcing
        return ONLY_TLS if is_refused else ""

    def _pair_fault(self, host: str, *, is_tls: bool) -> str:
        """Why a slave of our own wire at this address cannot join; empty if it may try."""
        if not is_tls and (fault := self._plain_fault()):
            return fault
        if self._pair is None:
            return "the broker is starting"
        return secret_fault(self._pair.secret, host, option="haSecret")

    def _serve_pair(self, slave: HAConnection, *, is_tls: bool) -> None:
        assert self._pair is not None
        accepted = slave.hand_over()
        self._slaves.pop(slave, None)
        connection = self._pair.accept(slave.remote)
        self._slaves[connection] = 0
        context = self._tls.listening if is_tls else None
        limit = {} if context is None else {"ssl_handshake_timeout": HANDSHAKE_S}

        async def serve() -> None:
            try:
                await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **limit)
            except OSError as error:  # also a failed TLS handshake
                accepted.close()
                connection.close(f"its TLS handshake failed: {error}" if is_tls else "")

        task = self._loop.create_task(serve())
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _fault_of(self, host: str, *, has_proof: bool | None = None, joining: bool = True) -> str:
        """Why no slave at this address may have the log; empty if it may. `has_proof`: whether its wire proves that it
        knows the secret, None: not known yet."""
        if joining and sum(not slave.is_newcomer for slave in self._slaves) >= SLAVES_MAX:
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

    def _refuse(self, host: str, port: int, why: str, state: str = "") -> None:
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

    def _pair_left(self, slave: PairConnection, why: str, code: int) -> None:
        self._left(slave, why, STATES.get(code, "refused") if code >= 0 else "")

    def _left(self, slave: SlaveConnection, why: str, state: str = "") -> None:
        self._slaves.pop(slave, None)
        self._rates.pop(slave, None)
        if why:
            self._refuse(*slave.remote, why, state)
        elif slave.end >= 0:
            log.info("slave %s:%d left at %d", *slave.remote, slave.end)
        silent = self._loop.time() - slave.last_read >= self._config.options.ha_housekeeping_ms / 1000
        later = [other for other in self._slaves if silent and other.began > slave.last_read]
        self._expected.left(slave, slave.end, self._clock.now_ms(), later)
        self._confirm()

    def _acknowledged(self, slave: SlaveConnection) -> None:
        written, now = self._store.written, self._loop.time()
        if slave.target_at == 0.0:
            self._refused.pop(slave.remote[0], None)
            self._expected.connected(slave, self._place(slave))
            slave.target, slave.target_at = written, now
            log.info("slave %s:%d copies the log from %d on", *slave.remote, slave.end)
        options = self._config.options
        if not slave.in_sync and slave.end >= slave.target:
            slave.in_sync = has_caught_up(
                slave.end,
                written,
                since_s=now - slave.target_at,
                timeout_s=options.slave_timeout_ms / 1000,
            )
            slave.target, slave.target_at = written, now
            if slave.in_sync:
                self._expected.in_sync(slave, self._place(slave))
                self._loop.call_later(EXPECTED_AFTER_S, self._stayed, slave, slave.target_at)
        if slave.in_sync and written - slave.end >= options.ha_gap_bytes:
            self._drop_out(slave, f"is {written - slave.end} bytes behind (haMaxGapNotInSync)")
        self._confirm()

    def _stayed(self, slave: SlaveConnection, since: float) -> None:
        """It was in sync all that time, if it is in sync since then."""
        if slave in self._slaves and slave.in_sync and slave.target_at == since:
            self._expected.stayed(slave, self._place(slave))

    def _place(self, slave: SlaveConnection) -> Place:
        """By what a slave is known."""
        host = ip_text(slave.remote[0])
        facts = slave.facts if isinstance(slave, PairConnection) else None
        if facts is None:
            return Place("", 0, host, 0)
        if facts.member is None:  # an earlier FireArrow
            return Place(facts.node.hex(), 0, host, 0)
        address = address_or_none(facts.member.address, host) or (host, 0)
        return Place(facts.node.hex(), facts.member.broker_id, *address)

    def _drop_out(self, slave: SlaveConnection, why: str) -> None:
        slave.in_sync = False
        slave.target, slave.target_at = self._store.written, self._loop.time()
        log.info("slave %s:%d %s: it does not count until it has caught up", *slave.remote, why)

    # ---- the log ----

    def _written(self) -> None:
        """After each write of the broker's."""
        if not self._slaves or self._planned:
            return
        if self._waits and self._copies.wanted > 1:
            return self._push()
        self._planned = True
        self._loop.call_later(PACE_S, self._push)

    def _push(self) -> None:
        self._planned = False
        for slave in list(self._slaves):
            slave.send()

    def _confirm(self) -> None:
        if not self._waits:
            return
        ends = [slave.end for slave in self._slaves if slave.in_sync]
        connected = sum(slave.end >= 0 for slave in self._slaves)
        if len(ends) + 1 >= self._copies.wanted:
            self._starts_until = 0.0
        confirmed = confirmed_by(ends, connected, self._copies, starts=self._starts_until > 0)
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._write_batch.refuses_sends = confirmed.refuses
            self._write_batch.set_replicated(confirmed.replicated, confirmed.visible, confirmed.fault)

    def _confirmed_at(self, slave: PairConnection) -> int:
        """Up to where readers of this slave may see what it has."""
        if not self._waits or self._config.options.read_unconfirmed:
            return self._store.written
        in_sync = [other for other in self._slaves if other.in_sync]
        others = [other.end for other in in_sync if other is not slave]
        found = confirmed_at(others, len(in_sync) + 1, self._copies, starts=self._starts_until > 0)
        return min(found, self._store.written)

    # ---- time ----

    def _tick(self) -> None:
        options, now = self._config.options, self._loop.time()
        if self._pair is not None:
            self._pair.push_tables()
            self._push()
        for slave in list(self._slaves):
            heard_at = slave.began if slave.is_newcomer else slave.last_read
            if now - heard_at >= options.ha_housekeeping_ms / 1000:
                slave.close()
            elif now - slave.last_written >= options.ha_heartbeat_ms / 1000 or slave.waits_for_confirmed:
                slave.heartbeat()
        if not self._waits:
            self._drop_late(max(options.slave_timeout_ms / 1000, LATE_S))
        else:
            self._expire(options.slave_timeout_ms)
            if 0 < self._starts_until <= now:
                self._starts_until = 0.0
                log.warning(
                    "not all slaves were in sync within slaveTimeout=%d ms: readers wait for those that are",
                    options.slave_timeout_ms,
                )
                self._confirm()

    def _expire(self, timeout_ms: int) -> None:
        late = self._write_batch.expire_unreplicated(timeout_ms)
        for slave in self._slaves:
            if slave.in_sync and slave.end < late:
                self._drop_out(slave, f"has not acknowledged {late} within {timeout_ms} ms (slaveTimeout)")
        if late:
            self._confirm()

    def _drop_late(self, within_s: float) -> None:
        """Slaves that lack what the log had that long ago, while no send waits for them."""
        written, now = self._store.written, self._loop.time()
        for slave in self._slaves:
            if slave.in_sync and slave.end < written:
                lag = self._times.lag(slave.end, written, now)
                if lag.ms > 1000 * within_s:
                    self._drop_out(slave, f"is {lag.ms} ms behind")

    def _measure(self) -> None:
        self._times.note(self._store.written, self._loop.time(), self._messages())
        for slave, before in self._slaves.items():
            self._rates[slave] = slave.sent_bytes - before
            self._slaves[slave] = slave.sent_bytes

    # ---- status ----

    def connections(self) -> list[dict[str, object]]:
        """The slaves, as GET_BROKER_HA_STATUS lists them."""
        found: list[dict[str, object]] = []
        for slave, lag in self._lags():
            entry = {
                "addr": "{}:{}".format(*slave.remote),
                "slaveAckOffset": slave.end,
                "diff": lag.bytes,
                "inSync": self._is_in_sync(slave),
                "transferFromWhere": slave.sent,
                "transferredByteInSecond": self._rates.get(slave, 0),
                "lagMs": lag.ms,
                "lagMessages": lag.messages,
            }
            if isinstance(slave, PairConnection) and slave.facts is not None:
                entry |= {
                    "brokerId": 0 if slave.facts.member is None else slave.facts.member.broker_id,
                    "node": slave.facts.node.hex(),
                    "flushedOffset": slave.flushed,
                    "notedBytes": slave.noted,
                }
            found.append(entry)
        return found

    def replicas(self) -> list[ReplicaLag]:
        """The slaves that copy the log."""
        found = []
        for slave, lag in self._lags():
            known = self._expected.of(slave)
            names = ("", "") if known is None else (known.host, self._expected.name_of(known))
            found.append(ReplicaLag(slave.remote, self._is_in_sync(slave), *lag, *names))
        return found

    def expected_replicas(self) -> list[ReplicaLag]:
        """These, and those that are expected to."""
        written, now, messages = self._store.written, self._loop.time(), self._messages()
        return [
            *self.replicas(),
            *(
                ReplicaLag(
                    None,
                    False,
                    *self._times.lag(each.end, written, now, messages),
                    each.host,
                    self._expected.name_of(each),
                )
                for each in self._expected.missing()
            ),
        ]

    @property
    def never_joined(self) -> int:
        """How many slaves there must be, by the options or an older version's pair, of which nothing is known."""
        options = self._config.options
        wanted = max(options.in_sync_replicas, options.min_in_sync_replicas) if self._waits else 1
        unexpected = sum(slave.end >= 0 and self._expected.of(slave) is None for slave in self._slaves)
        known = len(self._expected.all) + unexpected
        unknown = self._expected.unknown - self._expected.new - unexpected
        return max(max(options.total_replicas, wanted) - 1 - known, unknown, 0)

    def members(self) -> list[dict[str, object]]:
        """All that are expected, as GET_BROKER_HA_STATUS lists them. `reason`: why one is not connected."""
        missing = {id(each) for each in self._expected.missing()}
        return [
            {
                **asdict(each),
                "name": self._expected.name_of(each),
                "connected": id(each) not in missing,
                "reason": each.why_missing(self._started_ms) if id(each) in missing else "",
            }
            for each in self._expected.all
        ]

    def forget(self, name: str) -> str:
        """Expect the missing slave of this name no more, without a name those of which nothing is known; why not,
        empty: it is done."""
        if name:
            if self._expected.forget(name):
                return ""
            known = ", ".join(self._expected.name_of(each) for each in self._expected.missing()) or "none"
            return f"no slave of the name {name[:80]!r} is missing; missing are: {known}"
        if self._expected.forget_unknown():
            return ""
        return (
            "every slave that never joined is one that totalReplicas or inSyncReplicas asks for: change these"
        )

    def forget_missing(self) -> int:
        """Expect no slave any more that is not connected, unless an option asks for it; returns how many they were."""
        return self._expected.forget_missing()

    def write_fault(self) -> str:
        """Why sends are refused; empty: they are not."""
        if not self._waits or self._confirmed is None or not self._confirmed.refuses:
            return ""
        present, copies = self._present(), self._copies
        needed, option = copies.least, "minInSyncReplicas"
        if present >= needed:
            needed, option = copies.wanted, "inSyncReplicas, with enableSlaveActingMaster"
        absent = [self._expected.name_of(each) for each in self._expected.missing()]
        absent += [f"{self.never_joined} that never joined"] if self.never_joined else []
        lacking = f"; missing: {', '.join(absent)}" if absent else ""
        return f"sends are refused: {present} of {needed} copies are in sync ({option}){lacking}"

    def _present(self) -> int:
        """Copies in sync, ours included."""
        return 1 + sum(slave.in_sync for slave in self._slaves)

    def _lags(self) -> list[tuple[SlaveConnection, Lag]]:
        written, now, messages = self._store.written, self._loop.time(), self._messages()
        return [
            (slave, self._times.lag(slave.end, written, now, messages))
            for slave in self._slaves
            if slave.end >= 0
        ]

    def _is_in_sync(self, slave: SlaveConnection) -> bool:
        return slave.in_sync

    def status(self) -> dict[str, object]:
        """The member `replication` of /status."""
        options, slaves = self._config.options, self.connections()
        return {
            "role": options.broker_role,
            "end": self._store.written,
            "inSyncReplicas": options.in_sync_replicas,
            "inSync": sum(slave["inSync"] is True for slave in slaves),
            "slaves": slaves,
            "missing": [each for each in self.members() if not each["connected"]],
            "neverJoined": self.never_joined,
            "refused": self.refused(),
        }

    def refused(self) -> list[dict[str, object]]:
        """The last slave of each address that got nothing, and why; the newest last."""
        return list(self._refused.values())
