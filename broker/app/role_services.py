"""RoleServices: builds what decides which broker of a name is the master: promotion, fencing, the look at name servers.

Loop thread.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from firearrow._native.store.message_store import WriteRefusal
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.failover.fencing import Fencing
from firearrow.broker.replication.failover.master_watch import MasterWatch
from firearrow.broker.replication.failover.member_group import brokers_of_name
from firearrow.broker.replication.failover.promotion import Promotion
from firearrow.broker.replication.failover.role import BrokerRole
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, may_follow
from firearrow.broker.replication.slave import Slave
from firearrow.broker.services.registration import Registrar
from firearrow.broker.tables.registration import BrokerIdentity
from firearrow.broker.tables.routes import RouteTable

log = logging.getLogger("firearrow.replication")


class RoleServices:
    """`slave` None: this broker is a master. `names`: of the name server in this process. `replicates`: slaves copy its
    log. `stop_services()`: ends deliveries, checks and all else that writes to the log by itself."""

    def __init__(
        self,
        context: BrokerContext,
        role: BrokerRole,
        slave: Slave | None,
        registrar: Registrar,
        identity: BrokerIdentity,
        names: RouteTable,
        *,
        replicates: bool,
        stop_services: Callable[[], None],
    ) -> None:
        self._context = context
        self._role = role
        self._slave = slave
        self._registrar = registrar
        self._identity = identity
        self._names = names
        self._may_be_outdated = slave is None and (replicates or role.epoch > 0)
        self._promotion = Promotion(context, role, slave)
        self._fencing = Fencing(context, role, is_master=slave is None, stop_services=stop_services)
        self._watch: MasterWatch | None = None
        role.wire(self._refuse_writes, lambda why: context.restart(Restart(why)))
        self._holds_writes = self._may_be_outdated and not role.begins
        if self._holds_writes:
            context.store.write_refusal = WriteRefusal.UNCERTAIN

    def routes(self, broker_routes: Iterable[Routes]) -> list[Routes]:
        """Those of a master, as this broker serves them in its role, and its own."""
        own = [self._promotion.routes(), self._fencing.routes()]
        if self._slave is not None:
            return [*own, *self._slave.routes(broker_routes)]
        return [*own, *self._fencing.guarded(broker_routes)]

    async def register(self) -> None:
        """Register, unless this broker is fenced; a master takes writes once name servers were asked for a
        newer one, unless it has just been promoted."""
        registrar = self._registrar
        registrar.epoch = lambda: self._role.epoch
        self._promotion.others = partial(brokers_of_name, registrar, self._identity)
        if self._may_be_outdated:
            self._watch = MasterWatch(self._identity, lambda: self._role.epoch, self.outdated)
            registrar.watch = self._watch.check
            self._names.outdated = self.outdated
        if not self._role.fenced:
            registrar.start()
        if self._holds_writes:
            await registrar.watched()
            self._fencing.take_writes()

    @property
    def other_master(self) -> str:
        """Address of another master with our epoch; empty: none is known."""
        return "" if self._watch is None else self._watch.other_master

    def outdated(self, epoch: int, by: str) -> None:
        """Another broker of the name is the master since this epoch: it is proved, or name servers report it."""
        if not may_follow(epoch, self._role.epoch):
            if epoch > self._role.epoch:
                log.error(
                    "%s claims to be the master of epoch %d, more than %d after %d, that of this broker, which stays "
                    "the master: find out what it is",
                    by,
                    epoch,
                    EPOCH_JUMP_MAX,
                    self._role.epoch,
                )
            return
        with suppress(OSError):  # it has been logged
            self._role.fence(epoch, f"{by} is the master of epoch {epoch}")

    def stop(self) -> None:
        self._fencing.stop()

    def _refuse_writes(self, why: str) -> None:
        self._context.store.write_refusal = WriteRefusal.FENCED
        self._context.write_batch.refuse_waiting(why)
