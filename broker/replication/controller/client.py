"""ControllerClient: a broker under Apache's controllers, which decide who is the master (Apache: ReplicasManager).

It lives as long as the process: a broker changes its role by starting again, and controllers that lose its connection
meanwhile would elect another one. The start of the broker that runs now is attached to it.

Loop thread. NOTIFY_BROKER_ROLE_CHANGED 1008 is only a reason to ask: everybody can send it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, Peer, Routes
from firearrow.broker.replication.controller.broker_identity import Applied, IdentityFiles
from firearrow.broker.replication.controller.requests import (
    ControllerError,
    ControllerRequests,
    Elected,
    LogState,
    Members,
    leader_of,
    metadata_request,
)
from firearrow.broker.services.registration import Connect, addresses
from firearrow.broker.services.timers import watched

log = logging.getLogger("firearrow.controller")

CONNECT_S = ANSWER_S = 3.0
RETRY_S = 1.0
LOG_AGAIN_S = 60.0

Alter = Callable[[frozenset[int]], Awaitable[bool]]
"""Asks the controllers for another sync state set; False: they did not accept it."""


class Role(NamedTuple):
    """What the controllers made of this broker. `number`: its own; `master`: that of the master."""

    number: int
    master: int
    address: str
    epoch: int
    members: Members

    @property
    def is_master(self) -> bool:
        return self.number == self.master

    def options(self) -> Mapping[str, object]:
        """Fields of Options, as Apache's broker sets them."""
        if self.is_master:
            return {"broker_role": "SYNC_MASTER", "broker_id": 0}
        return {"broker_role": "SLAVE", "broker_id": self.number}


class Attached(Protocol):
    """The start of the broker that runs now."""

    def address(self, local: str) -> str:
        """By which others reach it; `local`: our host at a connection to a controller."""

    def log_state(self) -> LogState: ...
    def take(self, role: Role) -> None:
        """The role is new, or of a higher epoch."""

    def take_members(self, members: Members) -> None:
        """The sync state set may have changed, of the same epoch."""


def controllers_of(options: Options) -> list[Address]:
    """StartError."""
    try:
        found = addresses(options.controllers)
    except StartError as error:
        raise StartError(str(error).replace("namesrvAddr", "controllerAddr")) from None
    if not found:
        raise StartError(
            "enableControllerMode needs controllers: set controllerAddr=HOST:PORT;HOST:PORT to their addresses"
        )
    return found


class ControllerClient:
    """`connect` opens a connection to a controller, signed as all others. StartError: options or files are wrong."""

    def __init__(self, options: Options, clock: Clock, connect: Connect) -> None:
        self._controllers = controllers_of(options)
        self._options = options
        self._clock = clock
        self._connect = connect
        self._files = IdentityFiles(options.store_root, options.cluster_name, options.broker_name)
        self._requests = ControllerRequests(self._ask_leader, options.cluster_name, options.broker_name)
        self._peers: dict[Address, Peer] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._leader: Address | None = None
        self._registered = False
        self._broker: Attached | None = None
        self._log = LogState(0, 0, 0)
        self._address = ""
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._fault, self._logged_at = "", 0.0
        self.role: Role | None = None
        self.was_killed: bool | None = None
        """The broker did not stop cleanly before this process, and has not been the master since; None: not known."""

    # ---- the broker ----

    def options(self) -> Mapping[str, object]:
        """Of the next start: a slave without a master until the controllers have reported more."""
        if self.role is not None:
            return self.role.options()
        return {"broker_role": "SLAVE", "broker_id": self._files.number or 1}

    def attach(self, broker: Attached) -> None:
        """This start of the broker runs; the first one begins the work with the controllers."""
        self._broker = broker
        if not self._tasks:
            runs = self._run(), self._send_heartbeats(), self._find_leader()
            self._tasks = [watched(run, "a task that speaks with the controllers") for run in runs]
        self._wake.set()

    def detach(self) -> None:
        """The broker stops; heartbeats go on with what is known of its log."""
        if self._broker is not None:
            self._log = self._broker.log_state()
        self._broker = None

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers.values():
            peer.close()

    def routes(self) -> Routes:
        return {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified}

    def _notified(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._wake.set()
        return request.answer()

    # ---- who we are and what our role is ----

    async def _run(self) -> None:
        """Get a number and a role, then ask for changes."""
        while True:
            self._wake.clear()
            pause_s = self._options.broker_metadata_ms / 1000
            try:
                await (self._check_role() if self.role is not None else self._join())
                self._log_fault("")
            except (OSError, ControllerError) as error:
                self._log_fault(str(error) or type(error).__name__)
                if isinstance(error, OSError) or error.code == ResponseCode.CONTROLLER_NOT_LEADER:
                    self._leader = None
                pause_s = RETRY_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _join(self) -> None:
        """Apache: startBasicService."""
        number = self._files.number or await self._get_number()
        found = await self._register(number)
        await self._send_heartbeat(number)
        if found.number is None:
            found = await self._requests.elect(number, self._clock.now_ms())
        self._take(number, found)

    async def _get_number(self) -> int:
        """A crash in between leaves the application, which is repeated with the same check code."""
        if self._files.applied is None:
            number = await self._requests.next_number()
            code = f"{await self._own_address()};{self._clock.now_ms()}"
            self._files.apply(Applied(number, code))
        applied = self._files.applied
        assert applied is not None
        try:
            await self._requests.apply_for(applied.number, applied.check_code)
        except ControllerError as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                self._files.forget_application()
            raise
        self._files.accept(applied.number)
        log.info(
            "the controllers gave this broker the number %d in %s", applied.number, self._options.broker_name
        )
        return applied.number

    async def _register(self, number: int) -> Elected:
        found = await self._requests.register(number, await self._own_address(), self._clock.now_ms())
        self._registered = True
        return found

    async def _check_role(self) -> None:
        """Whether the master, or the set, is another one. Apache: schedulingSyncBrokerMetadata."""
        role = self.role
        assert role is not None
        if not self._registered:
            self._take(role.number, await self._register(role.number))
        try:
            found = await self._requests.replica_info()
        except ControllerError as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._registered = False
            raise
        if found.number is None and found.epoch >= role.epoch:
            found = await self._requests.elect(role.number, self._clock.now_ms())
        self._take(role.number, found)

    def _take(self, number: int, found: Elected) -> None:
        role = self.role
        if found.number is None:
            return
        if role is not None and found.epoch <= role.epoch:
            if found.epoch == role.epoch and role.is_master:
                self._take_members(found.members)
            return
        self.role = Role(number, found.number, found.address, found.epoch, found.members)
        what = "the master" if self.role.is_master else f"a slave of {found.address}"
        log.info("the controllers made this broker, number %d, %s in epoch %d", number, what, found.epoch)
        if self._broker is not None:
            self._broker.take(self.role)

    def _take_members(self, members: Members) -> None:
        """Also if nothing has changed: then it is known that the set has not."""
        if self.role is None or members.version < self.role.members.version:
            return
        self.role = self.role._replace(members=members)
        if self._broker is not None:
            self._broker.take_members(members)

    async def alter_members(self, wanted: frozenset[int]) -> bool:
        """Ask for another sync state set, as the master; the answer comes by `take_members`. False: it was refused, or
        none answered."""
        role = self.role
        if role is None or not role.is_master:
            return False
        try:
            members = await self._requests.alter_members(
                role.number, role.epoch, wanted, role.members.version, self._clock.now_ms()
            )
        except (OSError, ControllerError) as error:
            log.info(
                "the sync state set %s is not accepted: %s", sorted(wanted), error or type(error).__name__
            )
            self._wake.set()
            return False
        if self.role is not None and self.role.epoch == role.epoch:
            self._take_members(members)
        return True

    # ---- heartbeats, and who leads the controllers ----

    async def _send_heartbeats(self) -> None:
        while True:
            if self._files.number is not None and self._registered:
                await self._send_heartbeat(self._files.number)
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)

    async def _send_heartbeat(self, number: int) -> None:
        """To each controller: one that is to lead next has to know us."""
        await asyncio.gather(*(self._beat(each, number) for each in self._controllers))

    async def _beat(self, controller: Address, number: int) -> None:
        try:
            peer = await self._connected(controller)
        except OSError as error:
            return log.debug("no heartbeat to the controller %s:%d: %s", *controller, error)
        if self._broker is not None:
            self._log = self._broker.log_state()
        options = self._options
        peer.oneway(
            self._requests.heartbeat(
                number, self._own(peer), self._log, options.controller_timeout_ms, options.election_priority
            )
        )
        return None

    async def _find_leader(self) -> None:
        while True:
            await asyncio.sleep(self._options.controller_metadata_ms / 1000)
            try:
                self._leader = await self._leader_now()
            except (OSError, ControllerError) as error:
                log.debug("no controller reports the leader: %s", error)

    async def _leader_now(self) -> Address:
        """Ask each controller until one knows. OSError, ControllerError."""
        fault: Exception = ConnectionError("the controllers have no leader")
        for controller in self._controllers:
            try:
                peer = await self._connected(controller)
                leader = leader_of(await peer.ask(metadata_request(), ANSWER_S))
            except (OSError, ControllerError) as error:
                fault = error
                continue
            if leader is not None:
                return leader
        raise fault

    async def _ask_leader(self, request: RemotingCommand) -> RemotingCommand:
        if self._leader is None:
            self._leader = await self._leader_now()
        return await (await self._connected(self._leader)).ask(request, ANSWER_S)

    # ---- connections ----

    async def _connected(self, controller: Address) -> Peer:
        """One connection for all requests, as Apache's broker has: its end is our end. OSError."""
        async with self._connecting.setdefault(controller, asyncio.Lock()):
            peer = self._peers.get(controller)
            if peer is None or peer.closed:
                async with asyncio.timeout(CONNECT_S):
                    peer = self._peers[controller] = await self._connect(*controller)
            return peer

    async def _own_address(self) -> str:
        if self._leader is None:
            self._leader = await self._leader_now()
        return self._own(await self._connected(self._leader))

    def _own(self, peer: Peer) -> str:
        if self._broker is not None:
            self._address = self._broker.address(peer.local[0].removeprefix("::ffff:"))
        return self._address

    def _log_fault(self, fault: str) -> None:
        """Log a change, or once a minute."""
        now = self._clock.monotonic_ms() / 1000
        if fault and (fault != self._fault or now - self._logged_at > LOG_AGAIN_S):
            self._logged_at = now
            log.warning("the controllers sent no valid answer, trying again: %s", fault)
        elif self._fault and not fault:
            log.info("the controllers answer again")
        self._fault = fault

    def status(self) -> dict[str, object]:
        """A member of `replication` in /status."""
        role = self.role
        found: dict[str, object] = {
            "number": self._files.number,
            "leader": "" if self._leader is None else "{}:{}".format(*self._leader),
            "fault": self._fault,
        }
        if role is not None:
            found |= {"master": role.master, "masterAddress": role.address, "epoch": role.epoch}
            if role.is_master:
                found["syncStateSet"] = sorted(role.members.numbers)
        return found
