"""MemberGroup: the brokers of our own name, and our heartbeats to the name servers (enableSlaveActingMaster).

Apache: BrokerController.sendHeartbeat and syncBrokerMemberGroup. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.options import Options
from firearrow.broker.services.registration import Registrar
from firearrow.broker.services.timers import watched
from firearrow.broker.tables.json_fields import items, members, members_or_none
from firearrow.broker.tables.registration import BrokerIdentity
from firearrow.broker.tables.routes import IDS_MAX, MEMBERS_PREFIX

log = logging.getLogger("firearrow.registration")

Members = Mapping[int, str]
"""Broker id → address."""
ANSWER_S = 3.0


class MemberGroup:
    def __init__(self, registrar: Registrar, identity: BrokerIdentity, options: Options) -> None:
        self._registrar = registrar
        self._identity = identity
        self._heartbeat_s = options.heartbeat_interval_ms / 1000
        self._period_s = options.member_period_ms / 1000
        self._old = options.old_name_servers
        self._wake = asyncio.Event()
        self._failing = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, found: Callable[[Members], None] | None) -> None:
        """`found` gets the members each time a name server reported them; None: they are not asked for all the time."""
        self._tasks = [watched(self._send_heartbeats(), "a task that sends heartbeats to name servers")]
        if found is not None:
            self._tasks.append(watched(self._check_members(found), "a task that asks for the master"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check_now(self) -> None:
        """Ask for the members now: they may have changed."""
        self._wake.set()

    async def ask(self) -> Members:
        """The members as they are registered, ours among them. OSError; ValueError: the answer is malformed or a
        refusal."""
        identity = self._identity
        if not self._old:
            ext = {"clusterName": identity.cluster, "brokerName": identity.broker}
            answer = await self._registrar.ask(RequestCode.GET_BROKER_MEMBER_GROUP, ext, ANSWER_S)
            group = members(_body(answer).get("brokerMemberGroup"), "brokerMemberGroup")
            return _addresses(group.get("brokerAddrs"))
        ext = {"topic": MEMBERS_PREFIX + identity.broker}
        answer = await self._registrar.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, ANSWER_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        for entry in items(_body(answer).get("brokerDatas"), "brokerDatas"):
            broker = members(entry, "a member of brokerDatas")
            if (broker.get("brokerName"), broker.get("cluster")) == (identity.broker, identity.cluster):
                return _addresses(broker.get("brokerAddrs"))
        return {}

    async def _send_heartbeats(self) -> None:
        code = RequestCode.QUERY_DATA_VERSION if self._old else RequestCode.BROKER_HEARTBEAT
        while True:
            await asyncio.sleep(self._heartbeat_s)
            self._registrar.heartbeat(code)

    async def _check_members(self, found: Callable[[Members], None]) -> None:
        while True:
            try:
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                known = await self.ask()
            except (OSError, ValueError) as error:
                self._failed(error)
            else:
                self._failing = False
                found(known)

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            text = str(error) or type(error).__name__
            log.info("no name server reports the brokers of our name, trying again: %s", text)
        self._failing = True


async def brokers_of_name(registrar: Registrar, identity: BrokerIdentity) -> Members:
    """All that are registered under our name. OSError; ValueError: the answer is malformed or a refusal."""
    answer = await registrar.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, ANSWER_S)
    brokers = members_or_none(_body(answer).get("brokerAddrTable"), "brokerAddrTable")
    return _addresses(members_or_none(brokers.get(identity.broker), identity.broker).get("brokerAddrs"))


def _body(answer: RemotingCommand) -> Mapping[object, object]:
    if answer.code != ResponseCode.SUCCESS:
        raise ValueError(f"the name server refused with code {answer.code}: {answer.remark}")
    return members(fastjson.loads_body(answer.body), "the answer")


def _addresses(table: object) -> Members:
    found = members_or_none(table, "brokerAddrs")
    if len(found) > IDS_MAX:
        raise ValueError(f"brokerAddrs has {len(found)} members, at most {IDS_MAX}")
    return {int(broker_id): str(address) for broker_id, address in found.items()}
