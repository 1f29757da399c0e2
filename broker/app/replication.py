"""Replication: what makes this broker a master or a slave, as one of three: Standalone, Replicated or Controlled.

`replication_port` opens the port for slaves, as the broker registers with it; `make_replication` builds the rest once
the registrar and the message services exist. All three have the same methods, which `app` calls in this order:
`routes`, `register`, `start`. Loop thread.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from firearrow.broker.app.controller_mode import ControllerMode, begin_start
from firearrow.broker.app.foundation import Foundation, Lifecycle
from firearrow.broker.app.message_services import MessageServices
from firearrow.broker.app.ports import Ports
from firearrow.broker.app.role_services import RoleServices
from firearrow.broker.app.services import Services, go_online
from firearrow.broker.app.state import State
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.replicas import ReplicasHandler
from firearrow.broker.replication.controller.client import ControllerClient
from firearrow.broker.replication.controller.controlled_sync import ControlledSync
from firearrow.broker.replication.controller.follower import AppointedMaster
from firearrow.broker.replication.failover.isolated_start import IsolatedStart
from firearrow.broker.replication.failover.member_group import MemberGroup
from firearrow.broker.replication.failover.role import HA_PORT_GAP, BrokerRole
from firearrow.broker.replication.log.confirmed_offset import CopiesWarning
from firearrow.broker.replication.master import HAService
from firearrow.broker.replication.session.follower_session import FollowerSession
from firearrow.broker.replication.session.master_api import NO_NAMING, Master, Naming
from firearrow.broker.replication.session.replica_registry import ReplicaRegistry
from firearrow.broker.replication.session.timeout_sync import TimeoutSync
from firearrow.broker.replication.slave import RegisteredMaster, Slave
from firearrow.broker.replication.tables.slave_tables import CopiedProgress
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog
from firearrow.broker.replication.wires.firearrow.follower import FollowedParts
from firearrow.broker.replication.wires.firearrow.handshake import member_of
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower
from firearrow.broker.replication.wires.firearrow.shipment import ShippedParts
from firearrow.broker.replication.wires.firearrow.tables import FollowedTables, PushedTables
from firearrow.broker.services.registration import Registrar
from firearrow.broker.tables.registration import BrokerIdentity


class ReplicationPort(NamedTuple):
    """`master` None: this broker is a slave, or no slave copies its log. `sync`: what controllers change of the master;
    None: there are none. `identity`: what it registers as."""

    master: HAService | None
    sync: ControlledSync | None
    identity: BrokerIdentity


@asynccontextmanager
async def replication_port(base: Foundation, state: State, ports: Ports) -> AsyncIterator[ReplicationPort]:
    """Open the replication port if it is asked for; with port 0 of the broker and without haListenPort one that is
    free. StartError."""
    options = base.options
    base.config.listen(CopiesWarning().check)
    start = base.start
    if start.controllers is not None:
        begin_start(start.controllers, start.appointed, start.role.epochs, base.store, killed=base.killed)
    ha_port = 0
    asked = options.ha_port or options.broker_role == "SYNC_MASTER" or options.acting_master
    async with AsyncExitStack() as running:
        master, sync = _make_master(base, state) if asked and not options.is_slave else (None, None)
        if master is not None:
            running.callback(master.stop)
            port = options.ha_port or (0 if ports.asked == 0 else options.listen_port + HA_PORT_GAP)
            ha_port = (await master.start(options.bind_address, port, option="--set haListenPort"))[1]
        identity = BrokerIdentity(
            options.cluster_name,
            options.broker_name,
            options.broker_ip,
            options.client_port,
            options.broker_id if options.is_slave else 0,
            bound="" if options.bind_address in ("0.0.0.0", "::") else options.bind_address,
            ha_host=options.ha_ip,
            ha_port=ha_port,
            acting_ms=options.not_active_timeout_ms if options.acting_master else 0,
        )
        yield ReplicationPort(master, sync, identity)


def _make_master(base: Foundation, state: State) -> tuple[HAService, ControlledSync | None]:
    config, routes = base.config, state.name_server.routes

    def hosts() -> set[str]:
        return routes.slave_hosts(config.options.broker_name)

    registry = ReplicaRegistry(base.loop, base.store, config, base.clock, hosts, state.messages_sent)
    client, appointed, epochs = base.start.controllers, base.start.appointed, base.start.role.epochs
    sync = None
    if client is not None:
        assert appointed is not None  # without a role it is a slave
        sync = ControlledSync(
            base.loop, base.store, config, registry, appointed, epochs, client.alter_members
        )
    rule = sync or TimeoutSync(base.loop, base.store, config, registry)
    return HAService(base.loop, base.store, base.write_batch, config, base.tls, registry, rule), sync


@dataclass(frozen=True, eq=False, repr=False)
class Standalone:
    """No slave copies this broker's log, and it copies no other's; it may have been promoted, and be outdated."""

    context: BrokerContext
    identity: BrokerIdentity
    registrar: Registrar
    roles: RoleServices
    side: ClassVar[None] = None
    """The end of the replication that this broker is; None: nothing is replicated."""
    is_isolated: ClassVar[bool] = False
    """A master that takes over from its slaves, and does not serve clients yet."""
    epoch_cache: ClassVar[None] = None
    """The body of an answer to GET_BROKER_EPOCH_CACHE; None: there are no controllers."""

    def routes(self, broker_routes: Iterable[Routes]) -> list[Routes]:
        """Those of a master, as this broker serves them in its role, and its own."""
        return self.roles.routes([*broker_routes, _replicas_routes(self, None)])

    async def register(self, running: AsyncExitStack) -> None:
        """Register with the name servers, now or once this broker knows what it is."""
        await self.roles.register()

    def start(self, running: AsyncExitStack) -> None:
        """Serve or follow; all else runs."""

    def other_master(self) -> str:
        """Address of another master with our epoch; empty: none is known."""
        return self.roles.other_master

    def write_fault(self) -> str:
        """Why this broker, a master or configured as one, takes no sends; empty: it does, or is a slave."""
        return _refused(self.context)

    def facts(self) -> dict[str, object]:
        """What /status has besides the facts of `side`."""
        return {}


@dataclass(frozen=True, eq=False, repr=False)
class Replicated:
    """A master whose log slaves copy, or a slave; which of both, the store and promotions decide. `members`: with
    enableSlaveActingMaster. `journal`: of a slave."""

    context: BrokerContext
    identity: BrokerIdentity
    registrar: Registrar
    roles: RoleServices
    role: BrokerRole
    side: HAService | Slave
    services: MessageServices
    members: MemberGroup | None
    isolated_start: IsolatedStart | None
    journal: JournalFollower | None
    epoch_cache: ClassVar[None] = None

    def routes(self, broker_routes: Iterable[Routes]) -> list[Routes]:
        master = None if isinstance(self.side, Slave) else self.side
        routes = self.roles.routes([*broker_routes, _replicas_routes(self, master)])
        return routes if self.isolated_start is None else self.isolated_start.routes(routes)

    async def register(self, running: AsyncExitStack) -> None:
        if self.isolated_start is None:
            await self.roles.register()
        _start_members(self.members, self.side, running)

    def start(self, running: AsyncExitStack) -> None:
        if isinstance(self.side, HAService):
            self.side.start_serving()
        if self.isolated_start is not None:
            self.isolated_start.start()
            running.push_async_callback(self.isolated_start.stop)
        if self.journal is not None:
            self.journal.keep(self.services.recovered)
            self.services.rotated = self.journal.rotated
        if isinstance(self.side, Slave):
            self.side.start()
            running.push_async_callback(self.side.stop)

    @property
    def is_isolated(self) -> bool:
        return self.isolated_start is not None and not self.isolated_start.is_online

    def other_master(self) -> str:
        return self.roles.other_master

    def write_fault(self) -> str:
        if self.role.fenced:
            return f"sends are refused: {self.role.fenced}"
        if isinstance(self.side, Slave):
            return ""
        if self.isolated_start is not None and self.isolated_start.reason:
            return f"sends are refused: this master is isolated ({self.isolated_start.reason})"
        return _refused(self.context) or self.side.write_fault()

    def facts(self) -> dict[str, object]:
        """`isolated`: why this master is not online yet."""
        isolated = "" if self.isolated_start is None else self.isolated_start.reason
        return {"isolated": isolated} if isolated else {}


@dataclass(frozen=True, eq=False, repr=False)
class Controlled:
    """Controllers decide whether this broker is the master. `members`: with enableSlaveActingMaster."""

    context: BrokerContext
    identity: BrokerIdentity
    registrar: Registrar
    mode: ControllerMode
    side: HAService | Slave
    members: MemberGroup | None
    is_isolated: ClassVar[bool] = False

    def routes(self, broker_routes: Iterable[Routes]) -> list[Routes]:
        master = None if isinstance(self.side, Slave) else self.side
        routes = [*broker_routes, _replicas_routes(self, master), self.mode.routes()]
        return self.side.routes(routes) if isinstance(self.side, Slave) else routes

    async def register(self, running: AsyncExitStack) -> None:
        _start_members(self.members, self.side, running)

    def start(self, running: AsyncExitStack) -> None:
        if isinstance(self.side, Slave):
            self.side.start()
            running.push_async_callback(self.side.stop)
        else:
            self.side.start_serving()
        self.mode.start()
        running.callback(self.mode.stop)

    def epoch_cache(self) -> bytes:
        return self.mode.epoch_cache()

    def other_master(self) -> str:
        return ""

    def write_fault(self) -> str:
        return "" if isinstance(self.side, Slave) else _refused(self.context) or self.side.write_fault()

    def facts(self) -> dict[str, object]:
        return {"controllers": self.mode.status()}


Replication = Standalone | Replicated | Controlled


def status_of(replication: Replication, side: HAService | Slave) -> dict[str, object]:
    """The member `replication` of /status. `refuses`: why this master takes no sends. `otherMaster`: that has our
    epoch as well."""
    found = side.status()
    if other := replication.other_master():
        found["otherMaster"] = other
    if fault := replication.write_fault():
        found["refuses"] = fault
    return found | replication.facts()


def _refused(context: BrokerContext) -> str:
    refusal = context.store.write_refusal
    return "" if refusal is None else f"sends are refused: {refusal}"


def _replicas_routes(replication: Replication, master: HAService | None) -> Routes:
    return ReplicasHandler(
        replication.context.store,
        replication.identity,
        master,
        replication.other_master,
        replication.write_fault,
        lambda: replication.registrar.registers,
    ).routes()


def _start_members(members: MemberGroup | None, side: HAService | Slave, running: AsyncExitStack) -> None:
    if members is not None:
        acting = side.acting if isinstance(side, Slave) else None
        members.start(None if acting is None else acting.found)
        running.push_async_callback(members.stop)


# ---- building ----


class _Parts(NamedTuple):
    """What all three are built from."""

    base: Foundation
    state: State
    ports: Ports
    services: Services
    port: ReplicationPort
    registrar: Registrar
    members: MemberGroup | None


def make_replication(
    base: Foundation,
    state: State,
    ports: Ports,
    services: Services,
    port: ReplicationPort,
    registrar: Registrar,
) -> Replication:
    """What the options of this start make of the broker; the store's role or the controllers have decided them. A slave
    finds its master in the registrar's answers."""
    acting = base.options.acting_master
    members = MemberGroup(registrar, port.identity, base.options) if acting else None
    parts = _Parts(base, state, ports, services, port, registrar, members)
    if base.start.controllers is not None:
        return _controlled(parts, base.start.controllers)
    if base.options.is_slave:
        return _slave(parts)
    if port.master is None:
        return Standalone(services.context, port.identity, registrar, _roles(parts, None))
    return _master(parts, port.master)


def _roles(parts: _Parts, slave: Slave | None) -> RoleServices:
    base = parts.base
    roles = RoleServices(
        parts.services.context,
        base.start.role,
        slave,
        parts.registrar,
        parts.port.identity,
        parts.state.name_server.routes,
        replicates=parts.port.master is not None,
        stop_services=parts.services.messages.stop,
    )
    base.files.callback(roles.stop)
    return roles


def _own_log(parts: _Parts) -> OwnLog:
    role, identity = parts.base.start.role, parts.port.identity
    member = member_of(parts.base.options.broker_role, identity.broker_id, identity.address(""))
    return OwnLog(parts.base.store, role.identity, role.epochs, member)


def _slave(parts: _Parts) -> Replicated:
    base, context, registrar = parts.base, parts.services.context, parts.registrar
    messages, members, role = parts.services.messages, parts.members, base.start.role
    progress = messages.progress()
    journal = JournalFollower(context.journal, context.store.written, progress.restore)

    followed = FollowedParts(
        _own_log(parts),
        FollowedTables(context, progress),
        journal,
        base.options.ha_secret.encode(),
        lambda: base.tls.connecting,
    )
    check = (lambda: None) if members is None else members.check_now
    naming = Naming(registrar.refresh, check, lambda: registrar.fault)
    options, connect = base.options, parts.state.connect
    named = Master(connect, options.ha_master_address, leaves=options.acting_master)
    session = FollowerSession(context, base.arrivals, named, naming)
    master = RegisteredMaster(context, session, followed, role)
    slave = Slave(context, session, master, connect, _copied_progress(messages))
    registrar.answered = slave.registered
    parts.services.compaction.follow(slave.master.compacted)
    base.files.callback(_keep_journal, base.lifecycle, journal)
    roles = _roles(parts, slave)
    return Replicated(
        context, parts.port.identity, registrar, roles, role, slave, messages, members, None, journal
    )


def _copied_progress(messages: MessageServices) -> CopiedProgress:
    return CopiedProgress(messages.load_delay_offsets, messages.followed_timers)


def _keep_journal(lifecycle: Lifecycle, journal: JournalFollower) -> None:
    """If it has steps of a master's that a promotion must not repeat, and that no file has."""
    lifecycle.keep_journal = journal.has_followed


def _master(parts: _Parts, master: HAService) -> Replicated:
    context, messages, identity = parts.services.context, parts.services.messages, parts.port.identity
    roles = _roles(parts, None)
    isolated_start = _isolated_start(parts, master, roles)
    secret = parts.base.options.ha_secret.encode()
    tables = PushedTables(context, messages.progress())
    master.serve_firearrow(
        ShippedParts(
            context.clock,
            context.journal,
            _own_log(parts),
            tables,
            secret,
            roles.outdated,
            isolated=isolated_start is not None,
        )
    )
    role, members = parts.base.start.role, parts.members
    return Replicated(
        context, identity, parts.registrar, roles, role, master, messages, members, isolated_start, None
    )


def _isolated_start(parts: _Parts, master: HAService, roles: RoleServices) -> IsolatedStart | None:
    """A master that starts isolated; only name servers of other processes know slaves that went on without us."""
    others, members = parts.ports.name_servers, parts.members
    if not parts.base.options.starts_isolated or members is None or not others:
        return None

    async def online() -> None:
        master.go_online()
        await roles.register()
        go_online(parts.base, parts.ports, parts.services)

    return IsolatedStart(
        parts.services.context,
        parts.port.identity,
        parts.services.messages,
        connect=parts.state.connect,
        ask=members.ask,
        replicas=master.registry.replicas,
        refused=master.registry.refused,
        online=online,
    )


def _controlled(parts: _Parts, client: ControllerClient) -> Controlled:
    base, context, registrar = parts.base, parts.services.context, parts.registrar
    identity, epochs, port = parts.port.identity, base.start.role.epochs, parts.port
    if port.master is not None and port.sync is not None:
        mode = ControllerMode(client, context, epochs, port.sync, identity, registrar)
        return Controlled(context, identity, registrar, mode, port.master, parts.members)
    connect, progress = parts.state.connect, _copied_progress(parts.services.messages)
    session = FollowerSession(context, base.arrivals, Master(connect, ""), NO_NAMING)
    appointed = AppointedMaster(session, epochs, context.restart)
    slave = Slave(context, session, appointed, connect, progress)
    parts.services.compaction.follow(slave.master.compacted)
    mode = ControllerMode(client, context, epochs, appointed, identity, registrar)
    return Controlled(context, identity, registrar, mode, slave, parts.members)
