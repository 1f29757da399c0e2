"""AutoSwitchService: the replication port of a master under controllers, for Apache's slaves and ours. Loop thread.

As HAService, but: connections begin with a handshake and carry epochs and the confirmed offset; which slaves count is
the sync state set, whose changes the controllers have to accept. Apache: AutoSwitchHAService, AutoSwitchHAConnection.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import ip_text
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.client import Alter, Role
from firearrow.broker.replication.controller.frames import Greeting, PieceHeader
from firearrow.broker.replication.controller.requests import Members
from firearrow.broker.replication.controller.sync_state_set import SyncStateSet
from firearrow.broker.replication.log.confirmed_offset import CopiesNeeded
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile
from firearrow.broker.replication.master import HAService, SlaveConnection
from firearrow.broker.replication.session.expected_replicas import Place
from firearrow.broker.replication.wires.apache.sender import HAConnection

log = logging.getLogger("firearrow.replication")


class LogFacts(NamedTuple):
    """What pieces carry of the log. `confirmed()`: the confirmed offset."""

    epochs: EpochFile
    file_bytes: int
    confirmed: Callable[[], int]


class AutoSwitchConnection(HAConnection):
    """`greeting` None: the slave has not sent its greeting. `confirmed_sent`: the last confirmed offset sent to it."""

    header_bytes = frames.PIECE.size

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        store: MessageStore,
        log_facts: LogFacts,
        *,
        piece_bytes: Callable[[], int],
        begins: Callable[[HAConnection, int], bool],
        acknowledged: Callable[[HAConnection], None],
        closed: Callable[[HAConnection, str], None],
    ) -> None:
        super().__init__(
            loop,
            accepted,
            store,
            piece_bytes=piece_bytes,
            begins=begins,
            acknowledged=acknowledged,
            closed=closed,
        )
        self._epochs, self._file_bytes, self._confirmed = log_facts
        self.greeting: Greeting | None = None
        self._confirmed_sent = -1

    # ---- from the slave ----

    def _take(self, data: bytes) -> None:
        try:
            self._take_frames(data)
        except frames.FrameError as fault:
            return self.close(str(fault))
        if not self.is_closed and self.end >= 0:
            self.send()
        return None

    def _take_frames(self, data: bytes) -> None:
        at = 0
        while not self.is_closed:
            size = frames.GREETING.size if self.greeting is None else frames.ACKNOWLEDGEMENT.size
            frame = data[at : at + size]
            if len(frame) < size:
                break
            at += size
            if self.greeting is None:
                self.greeting = frames.greeting_of(frame)
                self._welcome()
            else:
                self._note_end(frames.acknowledged(frame))
        self._received = data[at:]

    def _welcome(self) -> None:
        """Report which epochs we have; the slave then reports where its log ends, after it has truncated it."""
        frame = frames.welcome_frame(self._store.written, self._epochs.entries)
        try:
            if self._socket.send(frame) < len(frame):
                return self.close("it does not take our handshake")
        except OSError:
            return self.close()
        self.last_written = self._loop.time()
        return None

    def _note_end(self, end: int) -> None:
        if self._sent < 0 and (fault := self._begin(end)):
            return self.close(fault)
        if end < 0 or end > self._sent:
            return self.close(f"it acknowledged the log up to {end}, but only {self._sent} was sent to it")
        self.end = end
        return self._acknowledged(self)

    def _begin(self, asked: int) -> str:
        if asked == 0 and self.greeting is not None and self.greeting.from_last_file:
            written = self._store.written
            self._sent = self._piece_end = max(written - written % self._file_bytes, self._store.min_physical)
            return ""
        return super()._begin(asked)

    # ---- to the slave ----

    def _pack(self, at: int, size: int) -> bytes:
        self._confirmed_sent = self._confirmed()
        return frames.piece_header(PieceHeader(size, at, self._epoch_at(at), self._confirmed_sent))

    @property
    def waits_for_confirmed(self) -> bool:
        return self._confirmed_sent != self._confirmed()

    def _piece_size(self, at: int, most: int) -> int:
        """A piece is of one epoch."""
        ends = [epoch.start - at for epoch in self._epochs.entries if at < epoch.start < at + most]
        return min(ends, default=most)

    def _epoch_at(self, at: int) -> Epoch:
        """Of the byte there; the oldest one, if that is older."""
        entries = self._epochs.entries
        return next((epoch for epoch in reversed(entries) if epoch.start <= at), entries[0])


class AutoSwitchService(HAService):
    """`lead` before `start`."""

    def lead(self, role: Role, epochs: EpochFile, alter: Alter) -> None:
        self._role = role
        self._epochs = epochs
        self._alter = alter
        self._set = SyncStateSet(role.number, role.members.numbers, role.members.version)
        self._asking: asyncio.Task[bool] | None = None
        self._expect()
        self._periodic.every(lambda: self._config.options.sync_set_check_ms / 1000, self._check)

    def begin_epoch(self, role: Role) -> None:
        """The master stays the same in a new epoch, which the file has already."""
        self._role = role
        self.take_members(role.members)

    def take_members(self, members: Members) -> None:
        """The sync state set that the controllers report."""
        if self._set.replace(members.numbers, members.version):
            log.info("the sync state set is %s now", sorted(self._set.members))
            self._expect()
        elif members.version == self._set.version and (self._asking is None or self._asking.done()):
            self._set.settle()
        self._confirm()

    def _expect(self) -> None:
        """All that are in the sync state set, from now on."""
        self._expected.expect(self._set.members - {self._role.number})
        for slave in self._slaves:
            if slave.end >= 0 and self._expected.of(slave) is None:
                self._expected.connected(slave, self._place(slave))

    def _place(self, slave: SlaveConnection) -> Place:
        greeting = slave.greeting if isinstance(slave, AutoSwitchConnection) else None
        return Place("", 0 if greeting is None else greeting.number, ip_text(slave.remote[0]), 0)

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        super().stop()

    # ---- the slaves ----

    def _make_connection(self, accepted: socket.socket) -> HAConnection:
        return AutoSwitchConnection(
            self._loop,
            accepted,
            self._store,
            LogFacts(self._epochs, self._config.options.segment_bytes, lambda: self._store.reader.confirmed),
            piece_bytes=lambda: self._config.options.ha_piece_bytes,
            begins=self._begins,
            acknowledged=self._acknowledged,
            closed=self._left,
        )

    def _begins(self, slave: HAConnection, first: int) -> bool:
        """All slaves of controllers speak one wire."""
        fault = self._plain_fault()
        if fault:
            slave.close(fault)
        return not fault

    def _acknowledged(self, slave: SlaveConnection) -> None:
        assert isinstance(slave, AutoSwitchConnection)
        assert slave.greeting is not None
        greeting, written, now = slave.greeting, self._store.written, self._loop.time()
        if slave.target_at == 0.0:
            if greeting.number == self._role.number:
                return slave.close(
                    f"it has this broker's number {greeting.number}: its brokerIdentity is a copy of this broker's; "
                    "delete it there, so that the controllers give it another one"
                )
            self._close_older(slave, greeting)
            self._refused.pop(slave.remote[0], None)
            self._expected.connected(slave, self._place(slave))
            slave.target, slave.target_at = written, now
            log.info("slave %d at %s:%d copies the log from %d on", greeting.number, *slave.remote, slave.end)
        self._set.acknowledged(greeting.number, slave.end)
        if slave.end >= slave.target:
            self._set.caught_up(greeting.number, now if slave.end == written else slave.target_at)
            slave.target, slave.target_at = written, now
            self._expand(greeting, slave.end)
        self._confirm()
        return None

    def _close_older(self, slave: SlaveConnection, greeting: Greeting) -> None:
        """What a connection from before still states must not count: its slave may have truncated its log."""
        for other in self._connections_of(greeting.number):
            if other is not slave:
                other.close()

    def _connections_of(self, number: int) -> list[AutoSwitchConnection]:
        """Of the slave with this number; it may have come again before an older connection ended."""
        return [
            slave
            for slave in self._slaves
            if isinstance(slave, AutoSwitchConnection)
            and slave.greeting is not None
            and slave.greeting.number == number
        ]

    def _left(self, slave: SlaveConnection, why: str, state: str = "") -> None:
        super()._left(slave, why, state)
        greeting = slave.greeting if isinstance(slave, AutoSwitchConnection) else None
        if greeting is None or greeting.number == self._role.number or self._connections_of(greeting.number):
            return
        wanted = self._set.left(greeting.number)
        if wanted is not None and self._listener is not None and not self._is_stopping:
            self._ask(wanted)

    # ---- the sync state set ----

    def _expand(self, greeting: Greeting, end: int) -> None:
        """A slave that has the confirmed log, into this epoch, counts from now on."""
        if greeting.learner or greeting.number in self._set.members:
            return
        if end >= max(self._store.reader.confirmed, self._epochs.entries[-1].start):
            self._ask(self._set.members | {greeting.number})

    def _check(self) -> None:
        """Look for slaves that have to leave the set, and for those that may join it since no other broker writes."""
        now, options = self._loop.time(), self._config.options
        idle = [
            slave.greeting
            for slave in self._slaves
            if isinstance(slave, AutoSwitchConnection)
            and slave.greeting is not None
            and slave.end == self._store.written
        ]
        for greeting in idle:
            self._set.caught_up(greeting.number, now)
        wanted = self._set.shrunk(now, options.catch_up_ms / 1000)
        if wanted is not None:
            return self._ask(wanted)
        for greeting in idle:
            self._expand(greeting, self._store.written)
        return None

    def _ask(self, wanted: frozenset[int]) -> None:
        """One change at a time: what else there is to change is found at the next acknowledgement or check."""
        if self._asking is None or self._asking.done():
            self._set.ask_for(wanted)
            self._confirm()  # it may count before the answer comes
            self._asking = asyncio.ensure_future(self._ask_controllers(wanted))

    async def _ask_controllers(self, wanted: frozenset[int]) -> bool:
        accepted = await self._alter(wanted)
        if accepted:
            self._loop.call_soon(self._look_again)
        return accepted

    def _look_again(self) -> None:
        """Slaves that left, or caught up, while the controllers were asked."""
        connected = {
            slave.greeting.number
            for slave in self._slaves
            if isinstance(slave, AutoSwitchConnection) and slave.greeting is not None
        }
        for number in self._set.members - connected - {self._role.number}:
            self._set.left(number)
        self._check()

    def _confirm(self) -> None:
        self._starts_until = 0.0  # the set states which slaves were there before the start
        options = self._config.options
        connected = sum(slave.end >= 0 for slave in self._slaves)
        confirmed = self._set.confirmed(self._copies, connected, all_members=options.all_members_acknowledge)
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._write_batch.refuses_sends = confirmed.refuses
            self._write_batch.set_replicated(confirmed.replicated, confirmed.visible, confirmed.fault)

    def _configure(self, options: Options) -> None:
        super()._configure(options)
        self._copies = CopiesNeeded(options.in_sync_replicas, options.min_in_sync_replicas)
        self._confirm()

    def _expire(self, timeout_ms: int) -> None:
        """Late sends are answered; only the controllers take a slave out of the set."""
        self._write_batch.expire_unreplicated(timeout_ms)

    def _present(self) -> int:
        return len(self._set.members)

    def _is_in_sync(self, slave: SlaveConnection) -> bool:
        greeting = slave.greeting if isinstance(slave, AutoSwitchConnection) else None
        return greeting is not None and greeting.number in self._set.members

    def status(self) -> dict[str, object]:
        return super().status() | {
            "epoch": self._role.epoch,
            "syncStateSet": sorted(self._set.members),
            "confirmed": self._store.reader.confirmed,
        }
