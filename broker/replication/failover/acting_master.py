"""ActingMaster: what a slave does while its master is down (enableSlaveActingMaster). Loop thread.

The slave with the smallest id serves reads, commits and locks. It stores nothing: delays, checks, revival and timers
wait for the master (Apache tries them on another broker name, with enableRemoteEscape). A master that comes back
offers its log (EXCHANGE_BROKER_HA_INFO) and asks for what was consumed before it registers; only then its tables are
copied again.
"""

import asyncio
import ipaddress
import logging

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.failover.member_group import Members
from firearrow.broker.replication.session.master_api import Master, Naming, address_or_none
from firearrow.broker.tables.routes import MASTER_ID

log = logging.getLogger("firearrow.slave")

GRACE_MS = 60_000
"""Java's and Go's clients ask for routes each 30 s."""
REGISTER_MS = 3000
"""Registers at most so often to learn the master's address."""
PASSING_MAX = 1000
"""Commits that wait for a connection to the master; consumers commit again."""


class ActingMaster:
    def __init__(self, context: BrokerContext, master: Master, naming: Naming) -> None:
        self._config = context.config
        self._clock = context.clock
        self._offsets = context.tables.offsets
        self._master = master
        self._naming = naming
        self._loop = context.loop
        self._passing: set[asyncio.Task[None]] = set()
        self._commits: int | None = None
        self._refreshed_ms = -REGISTER_MS
        self._ended_ms = -GRACE_MS
        self.is_acting = False

    @property
    def serves_reads(self) -> bool:
        """Also a while after the master is back, until clients have asked for the route again."""
        return self.is_acting or self._clock.monotonic_ms() - self._ended_ms < GRACE_MS

    def found(self, members: Members) -> None:
        """A name server reported the brokers of our name."""
        if not members:  # it has just started, or lost our registration as well
            return
        smallest = min(members)
        if smallest == MASTER_ID:
            if self.is_acting or not self._master.is_online:
                self._end()
            return
        if self._master.address is not None and not self._master.is_offered:
            log.info("the master has left: broker %d has the smallest id now", smallest)
            self._master.has_left()
        if smallest == self._config.options.broker_id:
            self._act()
        else:
            self.is_acting = False

    def _act(self) -> None:
        if not self.is_acting:
            log.warning(
                "this slave acts as the master, which is down: it serves reads and stores nothing; start it, or "
                "promote a slave"
            )
            self.is_acting, self._commits = True, self._offsets.commits
        else:
            self._change_version()

    def _change_version(self) -> None:
        """After the first commit: a master of Apache that changed its version before it went must not take its own
        offsets for the newer ones."""
        if self._commits is not None and self._offsets.commits != self._commits:
            self._commits = None
            self._offsets.version = self._offsets.version.next(self._clock.now_ms())

    def _end(self) -> None:
        """The master is registered: find its address in the answer to a registration, then copy its tables."""
        if self.is_acting:
            log.info("the master is back: this slave no longer acts in its place")
            self._ended_ms = self._clock.monotonic_ms()
        self.is_acting = False
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._refreshed_ms >= REGISTER_MS:
            self._refreshed_ms = now_ms
            self._naming.refresh()

    # ---- requests ----

    def committed(self, request: RemotingCommand) -> None:
        """A consumer committed an offset. If it still takes us for the master, pass it on, or the master's, which we
        copy, would replace it."""
        if self.is_acting:
            self._change_version()
        elif self._master.is_online and self.serves_reads and len(self._passing) < PASSING_MAX:
            task = self._loop.create_task(self._pass_on(request))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(self, request: RemotingCommand) -> None:
        try:
            await self._master.tell(request.code, request.ext)
        except (OSError, TimeoutError) as error:
            log.debug("a commit was not passed on to the master: %s", error)

    def notified(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """NOTIFY_MIN_BROKER_ID_CHANGE: anybody may send it, so we ask the name server."""
        self._naming.check()
        return request.answer()

    def offered(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """A master before it registers: follow its log. Refusal: it is none that we know."""
        host = peer.remote[0].removeprefix("::ffff:")
        address = address_or_none(request.text("masterAddress"), host)
        ha_address = address_or_none(request.text("masterHaAddress"), host)
        if address is None or ha_address is None:
            raise FieldError("masterAddress and masterHaAddress must be host:port")
        if self._master.is_online and address != self._master.address:
            raise Refusal(
                ResponseCode.NO_PERMISSION, "another master of this name is registered: stop one of the two"
            )
        if not self._knows(host):
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"no master is known at this address: set haAllowedAddresses={host} at this slave to follow it",
            )
        if address != self._master.address:
            log.info("the master at %s:%d offers its log: following it", *address)
        self._master.offered(address, ha_address)
        return request.answer()

    def _knows(self, host: str) -> bool:
        address, allowed = ipaddress.ip_address(host), self._config.options.ha_allowed_networks
        if any(address in network for network in allowed):
            return True
        return host == self._master.known_host or (not allowed and address.is_loopback)
