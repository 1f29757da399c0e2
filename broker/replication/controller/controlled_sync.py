"""ControlledSync: which slaves count as copies of the log under controllers: the sync state set, whose changes these
have to accept. Apache: AutoSwitchHAService. Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.replication.controller.client import Alter, Role
from firearrow.broker.replication.controller.frames import Greeting
from firearrow.broker.replication.controller.requests import Members
from firearrow.broker.replication.controller.sender import AutoSwitchCodec
from firearrow.broker.replication.controller.sync_state_set import SyncStateSet
from firearrow.broker.replication.log.confirmed_offset import Confirmed, CopiesNeeded
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.session.replica_registry import Replica, ReplicaRegistry
from firearrow.broker.replication.session.slave_stream import SlaveStream
from firearrow.broker.replication.session.wire import SenderWire
from firearrow.broker.services.timers import Periodic

log = logging.getLogger("firearrow.replication")


class ControlledSync:
    """`alter` asks the controllers for another set."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        config: Config,
        registry: ReplicaRegistry,
        role: Role,
        epochs: EpochFile,
        alter: Alter,
    ) -> None:
        self._loop = loop
        self._store = store
        self._config = config
        self._registry = registry
        self._role = role
        self._epochs = epochs
        self._alter = alter
        self._set = SyncStateSet(role.number, role.members.numbers, role.members.version)
        self._asking: asyncio.Task[bool] | None = None
        self._confirm: Callable[[], None] | None = None
        """None: not started, or stopped."""
        self.copies = CopiesNeeded()
        self._expect()

    # ---- from the controllers ----

    def begin_epoch(self, role: Role) -> None:
        """The master stays the same in a new epoch, which the file has already."""
        self._role = role
        self.take_members(role.members)

    def take_members(self, members: Members) -> None:
        """What the controllers report as the sync state set."""
        if self._set.replace(members.numbers, members.version):
            log.info("the sync state set is %s now", sorted(self._set.members))
            self._expect()
        elif members.version == self._set.version and (self._asking is None or self._asking.done()):
            self._set.settle()
        self._changed()

    def _expect(self) -> None:
        """All that are in the sync state set, from now on."""
        self._registry.expected.expect(self._set.members - {self._role.number})
        for replica in self._registry.copying:
            self._mark(replica)
            if self._registry.expected.of(replica.wire) is None:
                self._registry.expected.connected(replica.wire, replica.wire.place)

    def _mark(self, replica: Replica) -> None:
        replica.in_sync = replica.wire.place.broker_id in self._set.members

    def _changed(self) -> None:
        if self._confirm is not None:
            self._confirm()

    # ---- the slaves ----

    def start(self, periodic: Periodic, confirm: Callable[[], None], *, hides: bool) -> None:
        """As of `TimeoutSync`; which slaves were there before the start, the set states."""
        self._confirm = confirm
        periodic.every(lambda: self._config.options.sync_set_check_ms / 1000, self._check)

    def stop(self) -> None:
        self._confirm = None
        if self._asking is not None:
            self._asking.cancel()

    def serve(self) -> None: ...

    def configure(self, options: Options) -> None:
        self.copies = CopiesNeeded(options.in_sync_replicas, options.min_in_sync_replicas)

    def codec(self) -> AutoSwitchCodec:
        """Of a new connection."""
        return AutoSwitchCodec(self._store, self._epochs, self._config.options.segment_bytes)

    def fault_of(self, replica: Replica) -> str:
        number = replica.wire.place.broker_id
        if number == self._role.number:
            return (
                f"it has this broker's number {number}: its brokerIdentity is a copy of this broker's; "
                "delete it there, so that the controllers give it another one"
            )
        for other in self._connections_of(number):
            if other is not replica.wire:
                # what it still reports must not count: its slave may have truncated its log
                other.close()
        return ""

    def on_acknowledged(self, replica: Replica) -> None:
        written, now, wire = self._store.written, self._loop.time(), replica.wire
        greeting = _greeting(wire)
        self._mark(replica)
        self._set.acknowledged(greeting.number, wire.end)
        if wire.end >= replica.target:
            self._set.caught_up(greeting.number, now if wire.end == written else replica.target_at)
            self._registry.set_target(replica)
            self._expand(greeting, wire.end)

    def on_left(self, wire: SenderWire) -> None:
        number = wire.place.broker_id
        if number in (0, self._role.number) or self._connections_of(number):
            return
        wanted = self._set.left(number)
        if wanted is not None and self._confirm is not None:
            self._ask(wanted)

    def on_expired(self, end: int, timeout_ms: int) -> None:
        """Only the controllers take a slave out of the set."""

    def _connections_of(self, number: int) -> list[SenderWire]:
        """Of the slave with this number; it may have come again before an older connection ended."""
        wires = [replica.wire for replica in self._registry.all]
        return [wire for wire in wires if number and wire.place.broker_id == number]

    # ---- the sync state set ----

    def _expand(self, greeting: Greeting, end: int) -> None:
        """A slave that has the confirmed log, into this epoch, counts from now on."""
        if greeting.learner or greeting.number in self._set.members:
            return
        if end >= max(self._store.reader.confirmed, self._epochs.entries[-1].start):
            self._ask(self._set.members | {greeting.number})

    def _check(self) -> None:
        """Find slaves that have to leave the set, and those that may join it since no other broker writes."""
        now, options, written = self._loop.time(), self._config.options, self._store.written
        idle = [_greeting(each.wire) for each in self._registry.copying if each.wire.end == written]
        for greeting in idle:
            self._set.caught_up(greeting.number, now)
        wanted = self._set.shrunk(now, options.catch_up_ms / 1000)
        if wanted is not None:
            return self._ask(wanted)
        for greeting in idle:
            self._expand(greeting, written)
        return None

    def _ask(self, wanted: frozenset[int]) -> None:
        """One change at a time: what else there is to change is found at the next acknowledgement or check."""
        if self._asking is None or self._asking.done():
            self._set.ask_for(wanted)
            self._changed()  # it may count before the answer comes
            self._asking = asyncio.ensure_future(self._ask_controllers(wanted))

    async def _ask_controllers(self, wanted: frozenset[int]) -> bool:
        accepted = await self._alter(wanted)
        if accepted:
            self._loop.call_soon(self._check_again)
        return accepted

    def _check_again(self) -> None:
        """Slaves that left, or caught up, while the controllers were asked."""
        connected = {replica.wire.place.broker_id for replica in self._registry.all}
        for number in self._set.members - connected - {self._role.number}:
            self._set.left(number)
        self._check()

    # ---- what is confirmed ----

    def confirmed(self) -> Confirmed:
        connected = len(self._registry.copying)
        all_members = self._config.options.all_members_acknowledge
        return self._set.confirmed(self.copies, connected, all_members=all_members)

    def confirmed_at(self, wire: SenderWire) -> int:
        return self._store.reader.confirmed

    def present(self) -> int:
        return len(self._set.members)

    def status(self) -> dict[str, object]:
        return {
            "epoch": self._role.epoch,
            "syncStateSet": sorted(self._set.members),
            "confirmed": self._store.reader.confirmed,
        }


def _greeting(wire: SenderWire) -> Greeting:
    """Of a slave that has asked for the log."""
    assert isinstance(wire, SlaveStream)
    assert isinstance(wire.codec, AutoSwitchCodec)
    assert wire.codec.greeting is not None
    return wire.codec.greeting
