"""HAService: the replication port of a master: accepts slaves by the wire that they speak, sends them the log, and lets
senders and readers go on once enough of them have it. Loop thread.

Slaves that only follow (ASYNC_MASTER) get the log at most every millisecond, which costs senders little; slaves for
which sends wait (SYNC_MASTER) get each write at once.
"""

import asyncio
import errno
import logging
import socket

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address
from firearrow.broker.net.acceptor import Listener
from firearrow.broker.net.server import ONLY_TLS
from firearrow.broker.net.tls import FIRST_BYTE, ServerTls
from firearrow.broker.replication.controller.controlled_sync import ControlledSync
from firearrow.broker.replication.log.confirmed_offset import Confirmed
from firearrow.broker.replication.session.replica_registry import ReplicaRegistry
from firearrow.broker.replication.session.slave_stream import SlaveStream
from firearrow.broker.replication.session.timeout_sync import TICK_S, TimeoutSync
from firearrow.broker.replication.session.wire import SenderWire
from firearrow.broker.replication.wires.apache.sender import ApacheCodec
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC, secret_fault
from firearrow.broker.replication.wires.firearrow.shipment import Shipment, ShippedParts
from firearrow.broker.services.timers import Periodic

log = logging.getLogger("firearrow.replication")

HANDSHAKE_S = 10.0
PACE_S, RATES_S = 0.001, 1.0


SyncRule = TimeoutSync | ControlledSync
"""Which slaves count as copies of the log, and up to where it is confirmed by them."""


class HAService:
    """The first byte of a slave decides whether its wire is Apache's or FireArrow's; under controllers
    (`ControlledSync`) all speak theirs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        write_batch: WriteBatch,
        config: Config,
        tls: ServerTls,
        registry: ReplicaRegistry,
        rule: SyncRule,
    ) -> None:
        self._loop = loop
        self._store = store
        self._write_batch = write_batch
        self._config = config
        self._tls = tls
        self.registry = registry
        self._rule = rule
        self._waits = config.options.broker_role == "SYNC_MASTER"
        self._shipment: Shipment | None = None
        self._listener: Listener | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._planned = False
        self._confirmed: Confirmed | None = None
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
        self._rule.start(self._periodic, self._confirm, hides=confirmed < written)
        if confirmed < written:
            log.info(
                "readers see the log up to %d, not to %d: the rest was not confirmed before the start, and is shown "
                "once enough brokers have it",
                confirmed,
                written,
            )
        self._config.listen(self._configure)
        self.registry.measure()
        self._periodic.every(TICK_S, self._tick)
        self._periodic.every(RATES_S, self.registry.measure)
        address: Address = self._listener.sockets[0].getsockname()[:2]
        return address

    def start_serving(self) -> None:
        assert self._listener is not None
        self._listener.start_serving()
        self._rule.serve()

    def stop(self) -> None:
        """Send what the sockets take, and close."""
        self._rule.stop()
        self._periodic.stop()
        if self._listener is not None:
            self._listener.close()
        for replica in self.registry.all:
            replica.wire.send()
            replica.wire.finish()
            replica.wire.close()
        for task in self._handshakes:
            task.cancel()

    @property
    def serves_firearrow(self) -> bool:
        """Slaves of FireArrow's wire are served."""
        return self._shipment is not None

    def serve_firearrow(self, parts: ShippedParts) -> None:
        """From now on, slaves of FireArrow's wire are served, and get our tables; while we are isolated, the log
        alone."""
        self._shipment = Shipment(self._loop, self._store, parts, self, self._rule.confirmed_at)

    def go_online(self) -> None:
        """No longer isolated."""
        if self._shipment is not None:
            self._shipment.go_online()

    def _configure(self, options: Options) -> None:
        self._rule.configure(options)
        self._write_batch.set_read_unconfirmed(self._waits and options.read_unconfirmed)
        self._confirm()

    # ---- connections ----

    def _accept(self, accepted: socket.socket) -> None:
        rule = self._rule
        codec = rule.codec() if isinstance(rule, ControlledSync) else ApacheCodec()

        def piece_bytes() -> int:
            return self._config.options.ha_piece_bytes

        try:
            host, port = accepted.getpeername()[:2]
            fault = self.registry.fault_of(host)
            if fault:
                self.registry.refuse(host, port, fault)
                return accepted.close()
            self.registry.evict_newcomer()
            stream = SlaveStream(
                self._loop, accepted, self._store, codec, self, begins=self._begins, piece_bytes=piece_bytes
            )
        except OSError:  # it has disconnected already
            return accepted.close()
        return self.registry.add(stream)

    def _begins(self, stream: SlaveStream, first: int) -> bool:
        """Whether it speaks the wire of its codec; FireArrow's is served from here on, with TLS or without."""
        host = stream.traffic.remote[0]
        is_controlled = isinstance(self._rule, ControlledSync)
        is_tls = not is_controlled and first == FIRST_BYTE and self._tls.listening is not None
        is_firearrow = is_tls or (not is_controlled and first == MAGIC[0])
        fault = "" if is_tls else self._plain_fault()
        if is_firearrow:
            fault = fault or self._firearrow_fault(host)
        elif not is_controlled:
            fault = fault or self.registry.fault_of(host, has_proof=False, joining=False)
        if fault:
            stream.close(fault)
        elif is_firearrow:
            self._serve_firearrow(stream, is_tls=is_tls)
        return not fault and not is_firearrow

    def _plain_fault(self) -> str:
        is_refused = self._tls.listening is not None and self._tls.enforcing
        return ONLY_TLS if is_refused else ""

    def _firearrow_fault(self, host: str) -> str:
        """Why a slave of FireArrow's wire at this address cannot join; empty if it may try."""
        if self._shipment is None:
            return "the broker is starting"
        return secret_fault(self._shipment.secret, host, option="haSecret")

    def _serve_firearrow(self, stream: SlaveStream, *, is_tls: bool) -> None:
        assert self._shipment is not None
        accepted, wire = stream.hand_over(), self._shipment.accept(stream.traffic)
        self.registry.replace(stream, wire)
        context = self._tls.listening if is_tls else None
        limit = {} if context is None else {"ssl_handshake_timeout": HANDSHAKE_S}

        async def serve() -> None:
            try:
                await self._loop.connect_accepted_socket(lambda: wire, accepted, ssl=context, **limit)
            except OSError as error:  # also a failed TLS handshake
                accepted.close()
                wire.close(f"its TLS handshake failed: {error}" if is_tls else "")

        task = self._loop.create_task(serve())
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def on_acknowledged(self, wire: SenderWire) -> None:
        replica = self.registry.of(wire)
        if replica.target_at == 0.0:
            if fault := self._rule.fault_of(replica):
                return wire.close(fault)
            self.registry.asks(replica)
        self._rule.on_acknowledged(replica)
        return self._confirm()

    def on_left(self, wire: SenderWire, why: str, state: str = "") -> None:
        self.registry.remove(wire, why, state)
        self._confirm()
        self._rule.on_left(wire)

    # ---- the log ----

    def _written(self) -> None:
        """After each write of the broker's."""
        if not self.registry.all or self._planned:
            return
        if self._waits and self._rule.copies.wanted > 1:
            return self._push()
        self._planned = True
        self._loop.call_later(PACE_S, self._push)

    def _push(self) -> None:
        self._planned = False
        for replica in self.registry.all:
            replica.wire.send()

    def _confirm(self) -> None:
        if not self._waits:
            return
        confirmed = self._rule.confirmed()
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._write_batch.refuses_sends = confirmed.refuses
            self._write_batch.set_replicated(confirmed.replicated, confirmed.visible, confirmed.fault)

    def _tick(self) -> None:
        options, now = self._config.options, self._loop.time()
        if self._shipment is not None:
            self._shipment.push_tables()
            self._push()
        silent_s, heartbeat_s = options.ha_housekeeping_ms / 1000, options.ha_heartbeat_ms / 1000
        for replica in self.registry.all:
            wire, traffic = replica.wire, replica.wire.traffic
            if now - (traffic.began if wire.is_newcomer else traffic.last_read) >= silent_s:
                wire.close()
            elif now - traffic.last_written >= heartbeat_s or wire.waits_for_confirmed:
                wire.heartbeat()
        if self._waits:
            late = self._write_batch.expire_unreplicated(options.slave_timeout_ms)
            self._rule.on_expired(late, options.slave_timeout_ms)
            if late:
                self._confirm()

    # ---- status ----

    def write_fault(self) -> str:
        """Why sends are refused; empty: they are not."""
        if not self._waits or self._confirmed is None or not self._confirmed.refuses:
            return ""
        present, copies = self._rule.present(), self._rule.copies
        needed, option = copies.least, "minInSyncReplicas"
        if present >= needed:
            needed, option = copies.wanted, "inSyncReplicas, with enableSlaveActingMaster"
        missing = ", ".join(self.registry.missing())
        lacking = f"; missing: {missing}" if missing else ""
        return f"sends are refused: {present} of {needed} copies are in sync ({option}){lacking}"

    def status(self) -> dict[str, object]:
        """The member `replication` of /status."""
        options, slaves = self._config.options, self.registry.connections()
        return {
            "role": options.broker_role,
            "end": self._store.written,
            "inSyncReplicas": options.in_sync_replicas,
            "inSync": sum(slave["inSync"] is True for slave in slaves),
            "slaves": slaves,
            "missing": [each for each in self.registry.members() if not each["connected"]],
            "neverJoined": self.registry.never_joined,
            "refused": self.registry.refused(),
            **self._rule.status(),
        }
