"""IsolatedStart: a master of several replicas that starts (Apache: BrokerPreOnlineService). Loop thread.

It is isolated at first: not registered, and without background work. It offers its log to each slave that is
registered, waits until that copies it, and takes over what consumers committed and what was delivered while the
slave acted in its place. Then it is online. With no other broker registered it is online at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Answer, Handler, Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.failover.member_group import Members
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.replication.session.master_api import address_or_none
from firearrow.broker.services.registration import Connect
from firearrow.broker.services.timers import watched
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.registration import BrokerIdentity
from firearrow.broker.tables.routes import MASTER_ID

log = logging.getLogger("firearrow.replication")

CONNECT_S = ANSWER_S = 3.0
COPIES_WITHIN_S, LOOK_S, RETRY_S = 10.0, 0.05, 1.0
SERVED = frozenset(
    (
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_STATUS,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
    )
)
"""What slaves and operators need of an isolated broker."""
ISOLATED = (
    "service not available now. This master is not online yet: it takes over what its slaves did meanwhile"
)


class NotYet(Exception):
    """The broker cannot be online yet; the text states why."""


class DelayProgress(Protocol):
    """What is taken over besides consumer offsets: delay levels and timers; see `MessageServices.take_over`."""

    def take_over(self, delays: bytes, check_point: bytes | None) -> tuple[int, bool]: ...


class IsolatedStart:
    """`ask` returns the brokers of our name. `replicas()`: the slaves that copy the log; `refused()`:
    those that get nothing, and why (HAService). `online()` is called once."""

    def __init__(
        self,
        context: BrokerContext,
        identity: BrokerIdentity,
        progress: DelayProgress,
        *,
        connect: Connect,
        ask: Callable[[], Awaitable[Members]],
        replicas: Callable[[], list[ReplicaLag]],
        refused: Callable[[], list[dict[str, object]]],
        online: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = context.store
        self._offsets = context.tables.offsets
        self._identity = identity
        self._progress = progress
        self._connect = connect
        self._ask = ask
        self._replicas = replicas
        self._refused = refused
        self._clock = context.clock
        self._online = online
        self._end = context.store.written
        self._task: asyncio.Task[None] | None = None
        self.is_online = False
        self.reason = "no name server was asked yet"

    def routes(self, routes: Iterable[Routes]) -> list[Routes]:
        """These, refused until the broker is online unless slaves and operators need them."""
        return [{code: self._gate(code, handler) for code, handler in table.items()} for table in routes]

    def _gate(self, code: int, handler: Handler) -> Handler:
        if code in SERVED:
            return handler

        def gate(request: RemotingCommand, peer: Peer) -> Answer:
            if not self.is_online:
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, ISOLATED)
            return handler(request, peer)

        return gate

    def start(self) -> None:
        log.info("this master is isolated until it has asked the slaves of its name")
        self._task = watched(self._run(), "the task that ends the isolation of this master")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._take_over()
            except (NotYet, OSError, ValueError) as error:
                reason = str(error) or type(error).__name__
                if reason != self.reason:
                    self.reason = reason
                    log.info("not online yet, trying again: %s", reason)
                await asyncio.sleep(RETRY_S)
                continue
            self.is_online, self.reason = True, ""
            log.info("this master is online")
            return await self._online()

    async def _take_over(self) -> None:
        """From all slaves. NotYet, OSError, ValueError."""
        members = dict(await self._ask())
        master = members.pop(MASTER_ID, None)
        slaves = sorted(members.items())
        if slaves and master is not None and not self._is_us(master):
            raise NotYet(
                f"the broker at {master} is registered as the master of this name: stop it, or start this one as a "
                "slave"
            )
        for count, (broker_id, address) in enumerate(slaves, 1):
            await self._take_over_from(broker_id, address, count)

    def _is_us(self, address: str) -> bool:
        """Whether it is our own registration, from before the start."""
        own = self._identity.address("")
        return address.endswith(own) if own.startswith(":") else address == own

    async def _take_over_from(self, broker_id: int, address: str, count: int) -> None:
        found = address_or_none(address)
        if found is None:
            raise NotYet(f"the name server has the slave at {address[:80]!r}, which is not an address")
        host, port = found
        async with asyncio.timeout(CONNECT_S):
            peer = await self._connect(host, port)
        try:
            here = self._identity.bound or peer.local[0].removeprefix("::ffff:")
            ext = {
                "masterAddress": self._identity.address(here),
                "masterHaAddress": self._identity.ha_address(here),
                "masterFlushOffset": str(self._end),
            }
            await _ask(peer, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
            await self._copies(broker_id, host, count)
            delays = (await _ask(peer, RequestCode.GET_ALL_DELAY_OFFSET)).body
            offsets = fastjson.loads((await _ask(peer, RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
            try:
                check_point = (await _ask(peer, RequestCode.GET_TIMER_CHECK_POINT)).body
            except NotYet:  # its timers are switched off
                check_point = None
        finally:
            peer.close()
        moved = self._offsets.take_over(json_fields.members(offsets, "the slave's consumer offsets"))
        levels, timers = self._progress.take_over(delays, check_point)
        log.info(
            "taken over from broker %d at %s: %d consumer offsets, %d delay levels%s",
            broker_id,
            address,
            moved,
            levels,
            ", timers" if timers else "",
        )

    async def _copies(self, broker_id: int, host: str, count: int) -> None:
        """Wait until the slave copies the log: a connection from its host or, where addresses are translated, as many
        connections as slaves were asked."""
        deadline, began_ms = asyncio.get_running_loop().time() + COPIES_WITHIN_S, self._clock.now_ms()
        while asyncio.get_running_loop().time() < deadline:
            remotes = [lag.address[0] for lag in self._replicas() if lag.address is not None]
            if host in remotes or len(remotes) >= count:
                return
            if why := self._refusal(host, began_ms):
                raise NotYet(f"broker {broker_id} at {host} does not copy the log: {why}")
            await asyncio.sleep(LOOK_S)
        raise NotYet(
            f"broker {broker_id} at {host} does not copy the log (firearrow replica status shows why); stop it, or set "
            "skipPreOnline=true, to continue without what was consumed there"
        )

    def _refusal(self, host: str, since_ms: int) -> str:
        """Why a slave of this host got nothing; empty: none was refused."""
        for entry in self._refused():
            at_ms = entry["atMs"]
            if str(entry["addr"]).rpartition(":")[0] == host and isinstance(at_ms, int) and at_ms >= since_ms:
                return str(entry["reason"])
        return ""


async def _ask(peer: Peer, code: int, ext: dict[str, str] | None = None) -> RemotingCommand:
    answer = await peer.ask(RemotingCommand.request(code, ext or {}), ANSWER_S)
    if answer.code != ResponseCode.SUCCESS:
        raise NotYet(f"the slave refused request {code} with {answer.code}: {answer.remark}")
    return answer
