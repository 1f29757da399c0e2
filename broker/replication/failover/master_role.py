"""MasterRole, MasterReplicas: what a slave remembers of its master for its own promotion: its role, and the slaves that
it expects. Loop thread."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.peer import Address
from firearrow.broker.replication.log.pair_identity import MASTER_ROLES
from firearrow.broker.replication.session.expected_replicas import ExpectedReplica, parsed
from firearrow.broker.replication.session.master_api import Master, MasterError
from firearrow.broker.replication.session.slave_status import SlaveStatus, State
from firearrow.broker.tables import json_fields

log = logging.getLogger("firearrow.slave")

ROLE_PERIOD_S, REPLICAS_PERIOD_S = 0.1, 5.0


class MasterRole:
    """What the slave remembers of its master's role, so that its promotion keeps it. `record(role)`: does; OSError."""

    def __init__(self, master: Master, status: SlaveStatus, record: Callable[[str], None]) -> None:
        self._master = master
        self._status = status
        self._record = record
        self._asked: Address | None = None
        """Our end of the replication connection after whose beginning the master was asked: its role changes when it
        starts again only."""
        self._fault = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            local = self._status.local
            if self._status.state is State.FOLLOWING and local is not None and local != self._asked:
                await self._ask(local)
            await asyncio.sleep(ROLE_PERIOD_S)

    async def _ask(self, local: Address) -> None:
        try:
            role = await role_of(self._master)
            if role:
                self._record(role)
        except (OSError, MasterError) as error:
            fault = str(error) or type(error).__name__
            if fault != self._fault:
                log.info("the master's role is not known, will ask again: %s", fault)
            self._fault = fault
        else:
            self._asked, self._fault = local, ""


class MasterReplicas:
    """What the slave remembers of its master and of that one's other slaves, so that it expects them after its
    promotion. `record(replicas)`: None: the master does not report them."""

    def __init__(
        self, master: Master, status: SlaveStatus, record: Callable[[list[ExpectedReplica] | None], None]
    ) -> None:
        self._master = master
        self._status = status
        self._record = record

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._status.state is not State.FOLLOWING:
                await asyncio.sleep(ROLE_PERIOD_S)
                continue
            with suppress(OSError):
                self._record(await self._ask())
            await asyncio.sleep(REPLICAS_PERIOD_S)

    async def _ask(self) -> list[ExpectedReplica] | None:
        """OSError."""
        try:
            answer = await self._master.ask(RequestCode.GET_BROKER_HA_STATUS)
            body = json_fields.members(fastjson.loads_body(answer.body), "the answer")
            return parsed(body["members"]) if "members" in body else None
        except (MasterError, ValueError) as error:  # Apache's, or one that does not let us see it
            log.debug("the master's slaves are not known: %s", error)
            return None


async def role_of(master: Master) -> str:
    """brokerRole of a master, Apache's or ours; empty: it reports that it is not a master. OSError, MasterError."""
    answer = await master.ask(RequestCode.GET_BROKER_CONFIG)
    for line in answer.body.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == "brokerRole" and value.strip() in MASTER_ROLES:
            return value.strip()
    return ""
