"""What a broker asks its controllers, and what their answers mean. Sends nothing by itself.

Apache: BrokerOuterAPI, the headers of `remoting.protocol.header.controller`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.peer import Address
from firearrow.broker.replication.controller.sync_state_set import MEMBERS_MAX
from firearrow.broker.replication.log.epoch_file import EPOCH_MAX
from firearrow.broker.services.registration import addresses
from firearrow.broker.tables import json_fields

NUMBER_MAX = (1 << 62) - 1
Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand]]
"""Sends a request to the leader of the controllers. OSError, TimeoutError."""


class ControllerError(Exception):
    """A controller refused, or its answer is malformed. `code`: of its answer, 0 for the latter."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Members(NamedTuple):
    """The sync state set. `version`: its syncStateSetEpoch."""

    numbers: frozenset[int]
    version: int


class Elected(NamedTuple):
    """Who is the master, of which epoch. `number` None: there is none."""

    number: int | None
    address: str
    epoch: int
    members: Members


@dataclass(frozen=True, slots=True)
class LogState:
    """What a heartbeat states of the log."""

    epoch: int
    end: int
    confirmed: int


class ControllerRequests:
    """`ask` sends to the leader. All raise OSError, TimeoutError, ControllerError."""

    def __init__(self, ask: Ask, cluster: str, broker: str) -> None:
        self._ask = ask
        self._cluster, self._broker = cluster, broker

    async def next_number(self) -> int:
        answer = await self._answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, self._names())
        return _number(answer, "nextBrokerId")

    async def apply_for(self, number: int, check_code: str) -> None:
        ext = {**self._names(), "appliedBrokerId": str(number), "registerCheckCode": check_code}
        await self._answer(RequestCode.CONTROLLER_APPLY_BROKER_ID, ext)

    async def register(self, number: int, address: str, now_ms: int) -> Elected:
        ext = {**self._names(), "brokerId": str(number), "brokerAddress": address, "invokeTime": str(now_ms)}
        return elected(await self._answer(RequestCode.CONTROLLER_REGISTER_BROKER, ext))

    async def elect(self, number: int, now_ms: int) -> Elected:
        """Ask to be the master, if there is none."""
        ext = {**self._names(), "brokerId": str(number), "designateElect": "false", "invokeTime": str(now_ms)}
        accepted = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        return elected(await self._answer(RequestCode.CONTROLLER_ELECT_MASTER, ext, accepted=accepted))

    async def replica_info(self) -> Elected:
        return elected(
            await self._answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": self._broker})
        )

    async def alter_members(
        self, number: int, epoch: int, wanted: frozenset[int], version: int, now_ms: int
    ) -> Members:
        """Ask for another sync state set; `version` of the one that it replaces."""
        ext = {
            "brokerName": self._broker,
            "masterBrokerId": str(number),
            "masterEpoch": str(epoch),
            "invokeTime": str(now_ms),
        }
        body = orjson.dumps({"syncStateSet": sorted(wanted), "syncStateSetEpoch": version})
        answer = await self._answer(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, ext, body)
        return _members(answer.body, None)

    def heartbeat(
        self, number: int, address: str, log: LogState, timeout_ms: int, priority: int
    ) -> RemotingCommand:
        ext = {
            **self._names(),
            "brokerAddr": address,
            "brokerId": str(number),
            "epoch": str(log.epoch),
            "maxOffset": str(log.end),
            "confirmOffset": str(log.confirmed),
            "heartbeatTimeoutMills": str(timeout_ms),
            "electionPriority": str(priority),
        }
        return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, ext, oneway=True)

    def _names(self) -> dict[str, str]:
        return {"clusterName": self._cluster, "brokerName": self._broker}

    async def _answer(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes = b"",
        *,
        accepted: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        answer = await self._ask(RemotingCommand.request(code, dict(ext), body))
        if answer.code not in accepted:
            raise ControllerError(
                answer.code, f"it refused request {code} with {answer.code}: {answer.remark}"
            )
        return answer


def metadata_request() -> RemotingCommand:
    return RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO, {})


def leader_of(answer: RemotingCommand) -> Address | None:
    """The leader of the controllers, from the answer of any of them; None: they have none now."""
    text = answer.ext.get("controllerLeaderAddress") or ""
    if answer.code != ResponseCode.SUCCESS or not text:
        return None
    try:
        found = addresses(text)
    except StartError:
        raise ControllerError(0, f"the controllers' leader has the address {text[:64]!r}") from None
    return found[0] if found else None


def elected(answer: RemotingCommand) -> Elected:
    """Of an answer to 1002, 1003 or 1004. ControllerError."""
    try:
        number = _number(answer, "masterBrokerId") if answer.ext.get("masterBrokerId") else None
        epoch = answer.integer_or("masterEpoch", 0, 32)
        version = answer.integer("syncStateSetEpoch", 32) if answer.ext.get("syncStateSetEpoch") else None
    except FieldError as error:
        raise ControllerError(0, f"its answer is malformed: {error}") from None
    if not 0 <= epoch <= EPOCH_MAX:
        raise ControllerError(0, f"its answer names the epoch {epoch}")
    return Elected(number, answer.ext.get("masterAddress") or "", epoch, _members(answer.body, version))


def _number(answer: RemotingCommand, name: str) -> int:
    try:
        number = answer.integer(name)
    except FieldError as error:
        raise ControllerError(0, f"its answer is malformed: {error}") from None
    if not 0 < number <= NUMBER_MAX:
        raise ControllerError(0, f"its answer has {name} {number}")
    return number


def _members(body: bytes, version: int | None) -> Members:
    """`version`: where the header has it. Bodies without a set are those of names without a master."""
    if not body:
        return Members(frozenset(), version or 0)
    try:
        value = json_fields.members(fastjson.loads(body), "the sync state set")
        numbers = value.get("syncStateSet")
        numbers = () if numbers is None else numbers
        found = value.get("syncStateSetEpoch", 0) if version is None else version
        if not isinstance(numbers, list | tuple) or len(numbers) > MEMBERS_MAX:
            raise ValueError(f"syncStateSet is not a list of at most {MEMBERS_MAX} numbers")
        if not all(type(each) is int and 0 < each <= NUMBER_MAX for each in (*numbers, 1)):
            raise ValueError("syncStateSet has no numbers of brokers")
        if type(found) is not int or not 0 <= found <= EPOCH_MAX:
            raise ValueError("syncStateSetEpoch is not a number")
    except ValueError as error:
        raise ControllerError(0, f"its answer is malformed: {error}") from None
    return Members(frozenset(numbers), found)
