"""What a slave records of its master for its own promotion: its role, and the slaves that it expects. Loop thread."""

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


async def watch_role(master: Master, status: SlaveStatus, record: Callable[[str], None]) -> None:
    """Record the master's role, so that a promotion keeps it, until cancelled. `record(role)`: OSError. It is asked
    after each beginning of a replication connection: its role changes only when it starts again."""
    asked: Address | None = None
    fault = ""
    while True:
        local = status.local
        if status.state is State.FOLLOWING and local is not None and local != asked:
            try:
                role = await role_of(master)
                if role:
                    record(role)
            except (OSError, MasterError) as error:
                before, fault = fault, str(error) or type(error).__name__
                if fault != before:
                    log.info("the master's role is not known, will ask again: %s", fault)
            else:
                asked, fault = local, ""
        await asyncio.sleep(ROLE_PERIOD_S)


async def watch_replicas(
    master: Master, status: SlaveStatus, record: Callable[[list[ExpectedReplica] | None], None]
) -> None:
    """Record the master and its other slaves, so that they are expected after a promotion, until cancelled.
    `record(replicas)`: None: the master does not report them."""
    while True:
        if status.state is not State.FOLLOWING:
            await asyncio.sleep(ROLE_PERIOD_S)
            continue
        with suppress(OSError):
            record(await _replicas_of(master))
        await asyncio.sleep(REPLICAS_PERIOD_S)


async def _replicas_of(master: Master) -> list[ExpectedReplica] | None:
    """OSError."""
    try:
        answer = await master.ask(RequestCode.GET_BROKER_HA_STATUS)
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
