"""ReplicationServices: builds what makes this broker a master or a slave, by name servers or under controllers.

`app` builds it in the order of the methods below, and stops it. Loop thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.app.controller_mode import ControllerMode
from firearrow.broker.app.message_services import MessageServices
from firearrow.broker.app.pair_services import PairServices
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.peer import Address, Routes
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.handlers.replicas import ReplicasHandler
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.replication.controller.client import ControllerClient
from firearrow.broker.replication.failover.isolated_start import IsolatedStart
from firearrow.broker.replication.failover.member_group import MemberGroup
from firearrow.broker.replication.failover.role import HA_PORT_GAP, BrokerRole
from firearrow.broker.replication.log.confirmed_offset import CopiesWarning
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.replication.master import HAService, MasterParts, registered_master
from firearrow.broker.replication.session.master_api import Naming
from firearrow.broker.replication.slave import Slave, check_slave, registered_slave
from firearrow.broker.replication.tables.slave_tables import CopiedProgress
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog
from firearrow.broker.replication.wires.firearrow.follower import FollowedParts
from firearrow.broker.replication.wires.firearrow.handshake import member_of
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower
from firearrow.broker.replication.wires.firearrow.shipment import ShippedParts
from firearrow.broker.replication.wires.firearrow.tables import FollowedTables, PushedTables
from firearrow.broker.services.registration import Connect, Registrar, addresses
from firearrow.broker.tables.registration import BrokerIdentity
from firearrow.broker.tables.routes import RouteTable
from firearrow.broker.tables.topics import TopicTable


class ReplicationServices:
    """`controllers`: with enableControllerMode. StartError: a slave has no way to its master."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        clock: Clock,
        tls: ServerTls,
        role: BrokerRole,
        controllers: ControllerClient | None,
        restart: Callable[[Restart], None],
    ) -> None:
        self._loop = loop
        self._config = config
        self._clock = clock
        self._tls = tls
        self._role = role
        self._controllers = controllers
        self._restart = restart
        self._controller_mode: ControllerMode | None = None
        self._ha: HAService | None = None
        self._slave: Slave | None = None
        self._journal: JournalFollower | None = None
        self._pre_online: IsolatedStart | None = None
        self._members: MemberGroup | None = None
        options = config.options
        if not role.fenced:
            check_slave(options, addresses(options.name_servers))

    def open(self, store: MessageStore, *, killed: bool) -> None:
        """The store is open. StartError."""
        self._store = store
        if self._controllers is not None:
            self._controller_mode = ControllerMode(
                self._controllers, self._config, store, self._role.epochs, self._restart, killed=killed
            )

    async def listen(
        self,
        write_batch: WriteBatch,
        routes: RouteTable,
        messages_sent: Callable[[], int],
        running: AsyncExitStack,
        *,
        any_port: bool,
    ) -> BrokerIdentity:
        """Open the replication port if it is asked for, `any_port`: without haListenPort one that is free; returns what
        this broker registers as. StartError."""
        options = self._config.options
        self._config.listen(CopiesWarning().check)
        bound = "" if options.bind_address in ("0.0.0.0", "::") else options.bind_address
        ha_port = 0
        asked = options.ha_port or options.broker_role == "SYNC_MASTER" or options.acting_master
        if not options.is_slave and asked:
            port = options.ha_port or (0 if any_port else options.listen_port + HA_PORT_GAP)
            self._ha = self._make_master(write_batch, routes, messages_sent)
            running.callback(self._ha.stop)
            ha_port = (await self._ha.start(options.bind_address, port, option="--set haListenPort"))[1]
        self._identity = BrokerIdentity(
            options.cluster_name,
            options.broker_name,
            options.broker_ip,
            options.client_port,
            options.broker_id if options.is_slave else 0,
            bound=bound,
            ha_host=options.ha_ip,
            ha_port=ha_port,
            acting_ms=options.not_active_timeout_ms if options.acting_master else 0,
        )
        return self._identity

    def _make_master(
        self, write_batch: WriteBatch, routes: RouteTable, messages_sent: Callable[[], int]
    ) -> HAService:
        def hosts() -> set[str]:
            return routes.slave_hosts(self._config.options.broker_name)

        parts = MasterParts(
            self._loop,
            self._store,
            write_batch,
            self._config,
            self._clock,
            hosts,
            messages_sent,
            self._tls,
        )
        if self._controller_mode is None:
            return registered_master(parts)
        return self._controller_mode.lead(parts)

    def build(
        self,
        context: BrokerContext,
        arrivals: ArrivalNotifier,
        services: MessageServices,
        connect: Connect,
        name_servers: list[Address],
        online: Callable[[], None],
        files: AsyncExitStack,
    ) -> None:
        """`name_servers`: of other processes. `online()`: a master that started isolated serves from now on."""
        self._services = services
        self._online = online
        self._slave = self._make_slave(context, arrivals, connect)
        if self._controller_mode is None:
            self._pair = PairServices(
                context,
                self._role,
                self._slave,
                replicates=self._ha is not None,
                stop_services=services.stop,
            )
            files.callback(self._pair.stop)
            self._context = context
        self._pre_online = self._make_pre_online(context, connect, name_servers)
        self._handler = ReplicasHandler(
            self._store,
            self._identity,
            self._ha,
            self._other_master,
            self.write_fault,
            lambda: self._registrar.registers,
        )

    def _make_slave(
        self, context: BrokerContext, arrivals: ArrivalNotifier, connect: Connect
    ) -> Slave | None:
        if not self._config.options.is_slave:
            return None
        services = self._services
        copied = CopiedProgress(services.load_delay_offsets, services.followed_timers)
        if self._controller_mode is not None:
            return self._controller_mode.make_slave(context, arrivals, connect=connect, progress=copied)
        progress = services.progress()
        journal = self._journal = JournalFollower(context.journal, context.store.written, progress.restore)
        parts = FollowedParts(
            self._pair_log(),
            FollowedTables(context, progress),
            journal,
            self._config.options.ha_secret.encode(),
            lambda: self._tls.connecting,
        )
        return registered_slave(
            context,
            arrivals,
            parts=parts,
            connect=connect,
            naming=Naming(
                lambda: self._registrar.refresh(),  # noqa: PLW0108 (created later)
                self._look_at_members,
                lambda: self._registrar.fault,
            ),
            progress=copied,
            role=self._role,
        )

    def _join_pairs(self) -> None:
        """Serve slaves that are FireArrow as well. A master that is isolated first takes over what they know."""
        if self._ha is not None:
            context = self._context
            tables = PushedTables(context, self._services.progress())
            secret = self._config.options.ha_secret.encode()
            self._ha.serve_firearrow(
                ShippedParts(
                    context.journal, self._pair_log(), tables, secret, self._pair.outdated, self.is_isolated
                )
            )

    def _pair_log(self) -> OwnLog:
        options, identity = self._config.options, self._identity
        member = member_of(options.broker_role, identity.broker_id, identity.address(""))
        return OwnLog(self._store, self._role.identity, self._role.epochs, member)

    def _make_pre_online(
        self, context: BrokerContext, connect: Connect, name_servers: list[Address]
    ) -> IsolatedStart | None:
        """A master that starts isolated; only name servers of other processes know slaves that went on without us."""
        options = self._config.options
        isolated = options.starts_isolated and not options.controller_mode
        if not isolated or self._ha is None or not name_servers:
            return None
        return IsolatedStart(
            context,
            self._identity,
            self._services,
            connect=connect,
            ask=lambda: self._member_group().ask(),
            replicas=self._ha.registry.replicas,
            refused=self._ha.registry.refused,
            online=self._go_online,
        )

    def routes(self, broker_routes: Iterable[Routes]) -> list[Routes]:
        """Those of a master, as this broker serves them in its role, and its own."""
        routes = [*broker_routes, self._handler.routes()]
        if self._controller_mode is None:
            routes = self._pair.routes(routes)
            return routes if self._pre_online is None else self._pre_online.routes(routes)
        routes.append(self._controller_mode.routes())
        return routes if self._slave is None else self._slave.routes(routes)

    async def register(self, registrar: Registrar, routes: RouteTable, running: AsyncExitStack) -> None:
        """Register with the name servers, now or once this broker knows what it is."""
        self._registrar, self._routes = registrar, routes
        if self._controller_mode is None:
            self._join_pairs()
        if self._controller_mode is None and self._pre_online is None:
            await self._pair.register(registrar, self._identity, routes)
        options = self._config.options
        if options.acting_master:
            acting = None if self._slave is None else self._slave.acting
            found = None if acting is None else acting.found
            self._members = MemberGroup(registrar, self._identity, options, found)
            self._members.start()
            running.push_async_callback(self._members.stop)

    def start(self, topics: TopicTable, running: AsyncExitStack) -> None:
        """Follow the master, serve and take over from slaves, or do what the controllers decide. The message services
        run."""
        if self._ha is not None:
            self._ha.start_serving()
        if self._pre_online is not None:
            self._pre_online.start()
            running.push_async_callback(self._pre_online.stop)
        if self._journal is not None:
            self._journal.keep(self._services.recovered)
            self._services.rotated = self._journal.rotated
        if self._slave is not None:
            self._slave.start()
            running.push_async_callback(self._slave.stop)
        if self._controller_mode is not None:
            self._controller_mode.start(self._identity, topics, self._registrar)
            running.callback(self._controller_mode.stop)

    async def _go_online(self) -> None:
        if self._ha is not None:
            self._ha.go_online()
        await self._pair.register(self._registrar, self._identity, self._routes)
        self._online()

    def _other_master(self) -> str:
        return "" if self._controller_mode is not None else self._pair.other_master

    def _member_group(self) -> MemberGroup:
        assert self._members is not None
        return self._members

    def _look_at_members(self) -> None:
        if self._members is not None:
            self._members.check_now()

    # ---- what the broker asks ----

    @property
    def is_isolated(self) -> bool:
        """A master that takes over from its slaves, and does not serve clients yet."""
        return self._pre_online is not None and not self._pre_online.is_online

    @property
    def epoch_cache(self) -> Callable[[], bytes] | None:
        """The body of an answer to GET_BROKER_EPOCH_CACHE; None: there are no controllers."""
        return None if self._controller_mode is None else self._controller_mode.epoch_cache

    @property
    def slave(self) -> Slave | None:
        return self._slave

    def registered(self) -> Callable[[Mapping[str, str]], None]:
        """What takes the answers to registrations."""
        return (lambda ext: None) if self._slave is None else self._slave.registered

    def replicas(self) -> list[ReplicaLag]:
        """The slaves that copy our log, and those that are expected to."""
        return [] if self._ha is None else self._ha.registry.expected_replicas()

    def never_joined(self) -> int:
        """How many slaves this master expects of which it knows nothing."""
        return 0 if self._ha is None else self._ha.registry.never_joined

    def write_fault(self) -> str:
        """Why this broker, a master or configured as one, takes no sends; empty: it does, or is a slave."""
        if self._role.fenced:
            return f"sends are refused: {self._role.fenced}"
        if self._slave is not None:
            return ""
        if self._pre_online is not None and self._pre_online.reason:
            return f"sends are refused: this master is isolated ({self._pre_online.reason})"
        if self._store.write_refusal is not None:
            return f"sends are refused: {self._store.write_refusal}"
        return "" if self._ha is None else self._ha.write_fault()

    @property
    def status(self) -> Callable[[], dict[str, object]] | None:
        """The member `replication` of /status; None: nothing is replicated."""
        source = self._slave or self._ha
        if source is None:
            return None

        def status() -> dict[str, object]:
            """`isolated`: why this master is not online yet. `refuses`: why it takes no sends. `otherMaster`: that has
            our epoch as well."""
            found = source.status()
            if other := self._other_master():
                found["otherMaster"] = other
            if fault := self.write_fault():
                found["refuses"] = fault
            if self._pre_online is not None and self._pre_online.reason:
                found["isolated"] = self._pre_online.reason
            if self._controller_mode is not None:
                found["controllers"] = self._controller_mode.status()
            return found

        return status
