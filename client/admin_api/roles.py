"""Roles: makes a slave the master of its name, or lets it start again, on FireArrow's brokers. Loop thread."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import Members, read
from firearrow.client.base.errors import ClientError, OnlyFireArrow, check

CHANGE_S = 60.0
"""A planned change waits until the slave has the whole log of its master."""
STOPPED = ("diverged", "behind the log", "corrupted")
"""States of a slave that starts over."""
AGAIN_S = 0.1
AGAIN_WITHIN_S = 60.0
REGISTERED_WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Promoted:
    """`end`: of the log, where the epoch begins. `role_known`: the role was asked for, or is the old master's.
    `old_master`: empty, or what is to be done with it."""

    epoch: int
    end: int
    role: str
    role_known: bool
    old_master: str


async def promote(admin: Admin, address: str, *, role: str | None, force: bool) -> Promoted:
    """Make the slave at this address a master, without `role` of that of its old master; returns once it is one
    and a name server has it: before that, another slave does not see it, and could be promoted to the same epoch.
    BrokerError, OnlyFireArrow, ClientError: it is not one a minute later."""
    ext = {"force": str(force).lower()} | ({} if role is None else {"brokerRole": role})
    answer = await _change(admin, address, RequestCode.PROMOTE_BROKER, ext)
    promoted = read(
        answer.body,
        lambda of: Promoted(
            of.number("epoch"),
            of.number("end"),
            of.text("role"),
            of.flag("roleKnown", role is not None),
            of.text("oldMaster"),
        ),
    )
    await _until(admin, address, lambda of: of.flag("master"))
    with suppress(ClientError):  # it is the master also where no name server answers
        await _until(admin, address, lambda of: not of.flag("registers"), within_s=REGISTERED_WITHIN_S)
    return promoted


@dataclass(frozen=True, slots=True)
class SetAside:
    """`folder`: below which the slave keeps it."""

    log_bytes: int
    folder: str


async def rebuild(admin: Admin, address: str) -> SetAside:
    """Let the slave at this address start again with an empty log. BrokerError: its master can continue the log that
    it has; OnlyFireArrow, ClientError: it has not started again a minute later."""
    answer = await _change(admin, address, RequestCode.REBUILD_REPLICA, {})
    found = read(answer.body, lambda of: SetAside(of.number("logBytes"), of.text("folder")))
    await _until(admin, address, lambda of: _state(of) not in STOPPED)
    return found


async def forget(admin: Admin, broker: str, name: str) -> None:
    """Let the master of this name expect a missing slave no more; without its name, those that never joined.
    BrokerError: none of this name is missing; OnlyFireArrow."""
    address = await admin.calls.master(broker)
    await _change(admin, address, RequestCode.FORGET_REPLICA, {"name": name} if name else {})


async def forget_missing(admin: Admin, broker: str) -> int:
    """Let the master of this name expect no slave any more that is not connected, unless an option of it asks for one;
    returns how many they were. BrokerError, OnlyFireArrow."""
    address = await admin.calls.master(broker)
    answer = await _change(admin, address, RequestCode.FORGET_REPLICA, {"all": "true"})
    return read(answer.body, lambda of: of.number("forgotten"))


async def _change(admin: Admin, address: str, code: RequestCode, ext: Mapping[str, str]) -> RemotingCommand:
    request = RemotingCommand.request(code, ext)
    answer = await admin.calls.instance.call(address, request, CHANGE_S)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise OnlyFireArrow(address)
    return check(answer, address)


def _state(status: Members) -> str:
    return str(dict(status.members("haClientRuntimeInfo").pairs()).get("state", ""))


async def _until(
    admin: Admin, address: str, started: Callable[[Members], bool], *, within_s: float = AGAIN_WITHIN_S
) -> None:
    """Wait until what the broker, which starts again, states of itself shows that it has. ClientError: it does not."""
    why = ""
    for _ in range(int(within_s / AGAIN_S)):
        try:
            answer = await admin.calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)
            if read(answer.body, started):
                return
        except ClientError as error:  # it is starting
            why = f": {error}"
        await asyncio.sleep(AGAIN_S)
    raise ClientError(f"{address} has not started again within {within_s:.0f} s; its log has the reason{why}")
