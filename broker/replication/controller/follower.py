"""AutoSwitchFollower: the slave's end of the wire under controllers, of Apache's master or ours; AppointedMaster: the
master that the controllers name. Loop thread.

The controllers decide who the master is, the master where its replication port is (906) and which epochs it has. If our
log has more than it has in common with the master's, the broker starts again with its log truncated. Readers see the
log up to the confirmed offset that comes with each piece. Apache: AutoSwitchHAClient.
"""

import asyncio
import logging
from collections.abc import Callable

from firearrow._native.replication.follower import Follower, FollowError
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.peer import Address
from firearrow.broker.context.broker_context import Restart
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.client import Role
from firearrow.broker.replication.controller.frames import PieceHeader, Welcome
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile, common_point
from firearrow.broker.replication.session.expected_replicas import ExpectedReplica, ExpectedReplicas, Place
from firearrow.broker.replication.session.follower_session import (
    CONNECT_S,
    FollowerSession,
    MasterEnd,
    check_begin,
    check_last_record,
)
from firearrow.broker.replication.session.master_api import MasterError, address_or_none
from firearrow.broker.replication.session.slave_status import NotFollowed, State
from firearrow.broker.replication.session.wire import FollowerWire, MasterStream

log = logging.getLogger("firearrow.slave")

READ_BYTES = 1 << 19


class PieceReader:
    """Takes the pieces apart and gives them to the follower in the frames that it reads. `header(piece)` is called
    before the bytes of each: whether the follower gets it."""

    def __init__(self, follower: Follower, header: Callable[[PieceHeader], bool]) -> None:
        self._follower = follower
        self._wire = memoryview(follower.wire)
        self._header = header
        self._received = b""
        self._left = 0

    def take(self, data: memoryview) -> None:
        """FrameError, FollowError."""
        at = 0
        while at < len(data):
            if self._left == 0:
                part = frames.PIECE.size - len(self._received)
                self._received += bytes(data[at : at + part])
                at += part
                if len(self._received) == frames.PIECE.size:
                    self._begin(frames.piece_of(self._received))
                    self._received = b""
                continue
            part = min(self._left, len(data) - at, len(self._wire))
            self._wire[:part] = data[at : at + part]
            self._follower.received(part)
            self._left -= part
            at += part

    def _begin(self, piece: PieceHeader) -> None:
        if not self._header(piece):
            return
        header = piece.offset.to_bytes(8, "big") + piece.size.to_bytes(4, "big")
        self._wire[: len(header)] = header
        self._follower.received(len(header))
        self._left = piece.size


class AppointedMaster:
    """The master of a slave under controllers, who name it (`follow`)."""

    tables_copied_ms = 0

    def __init__(
        self, session: FollowerSession, epochs: EpochFile, restart: Callable[[Restart], None]
    ) -> None:
        self._session = session
        self.expected = ExpectedReplicas(session.store.root)
        self._epochs = epochs
        self._restart = restart
        self._role: Role | None = None

    def follow(self, role: Role) -> None:
        """Follow this master from now on; an address that is none leaves the slave without a master."""
        self._role = role
        self.expected.expect(number for number in role.members.numbers if number != role.number)
        self._session.master.appoint(address_or_none(role.address))
        self._session.interrupt(ConnectionError("the controllers named another master"))

    async def wire(self) -> FollowerWire:
        if self._role is None or self._session.master.address is None:
            raise ConnectionError("the controllers have not named a master yet")
        return AutoSwitchFollower(self._session, self._role, self._is_current, self._epochs, self._restart)

    def _is_current(self, role: Role) -> bool:
        return self._role is role

    @property
    def place(self) -> Place:
        host = "" if self._session.master.address is None else self._session.master.address[0]
        return Place("", 0 if self._role is None else self._role.master, host, 0)

    def is_us(self, replica: ExpectedReplica) -> bool:
        return self._role is not None and replica.broker_id == self._role.number

    def status(self) -> dict[str, object]:
        return {"epoch": self._epochs.last, "confirmed": self._session.confirmed_log.offset}


class AutoSwitchFollower:
    """`is_current(role)`: the controllers have reported nothing newer since. The pieces are taken apart on the way from
    the stream's buffer to the follower's."""

    pushes_tables = False

    def __init__(
        self,
        session: FollowerSession,
        role: Role,
        is_current: Callable[[Role], bool],
        epochs: EpochFile,
        restart: Callable[[Restart], None],
    ) -> None:
        self._session = session
        self._role = role
        self._is_current = is_current
        self._epochs = epochs
        self._restart = restart
        self._end = MasterEnd(session)
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received_welcome = b""
        self._welcome: asyncio.Future[Welcome] = session.loop.create_future()
        self._reader = PieceReader(session.follower, self._begin_piece)
        self._is_empty = session.follower.is_empty
        self.stream = MasterStream(session.loop, self._buffer, self._received)

    async def open(self) -> None:
        session, options = self._session, self._session.config.options
        await session.connect(self.stream, await self._ask_ha_address())
        greeting = frames.Greeting(self._role.number, options.from_last_file, options.async_learner)
        self.stream.write(frames.greeting_frame(greeting))
        welcome = await self._welcomed()
        self._check_role()
        await self._agree(welcome)
        self._check_role()
        self.report(session.durable)

    async def _ask_ha_address(self) -> Address:
        """OSError, TimeoutError, MasterError."""
        master = self._session.master
        answer = await master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        host = "" if master.address is None else master.address[0]
        found = address_or_none(answer.ext.get("masterHaAddress") or "", host)
        if found is None:
            raise MasterError(
                0, "the master has no replication port: it is not a master yet, or not under controllers"
            )
        master.ha_address = found
        return found

    def _check_role(self) -> None:
        """Our log is truncated where an older master's ends only while that is the master. ConnectionError."""
        if not self._is_current(self._role):
            raise ConnectionError("the controllers named another master")

    async def _welcomed(self) -> Welcome:
        """The master's handshake. ConnectionError, FollowError."""
        ended = self.stream.ended
        await asyncio.wait((self._welcome, ended), timeout=CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._welcome.done():
            return self._welcome.result()
        self._check_role()
        fault = ended.result() if ended.done() else None
        if isinstance(fault, FollowError):
            raise fault
        raise ConnectionError(
            "the master sent no handshake: set enableControllerMode there as here"
        ) from fault

    async def _agree(self, welcome: Welcome) -> None:
        """Find the common point; returns if our log ends there, and the follower is to go on from its end. NotFollowed;
        OSError, MasterError."""
        session, end = self._session, self._session.store.written
        session.note_end(welcome.end)
        self._is_empty = session.follower.is_empty
        if self._is_empty:
            session.durable = 0
            return
        await self._check_common(welcome, end)
        session.durable = session.follower.begin(0, 0)
        self._epochs.replace(epoch for epoch in welcome.epochs if epoch.start <= end)

    async def _check_common(self, welcome: Welcome, end: int) -> None:
        session, ours = self._session, self._epochs.entries
        point: int | None = end
        if ours:
            point = common_point(ours, end, welcome.epochs, welcome.end)
        if point is None or point < session.store.min_physical or (not ours and end > welcome.end):
            raise NotFollowed(
                State.DIVERGED,
                f"our log, to {end}, and the master's, to {welcome.end}, have no epoch in common: they are of "
                "different brokers; start this one with an empty store, or decide which of the logs is kept",
            )
        if point < end:
            self._truncate(point, end)
        master = await session.master.log_range()
        check_begin(end, master.begin)
        await check_last_record(session, master.begin)

    def _truncate(self, point: int, end: int) -> None:
        """NotFollowed: the broker starts again, without what only this log has."""
        reason = (
            f"its log is truncated from {end} to {point}, where its epochs differ from the master's: the rest was "
            "never confirmed; it is kept under damaged/"
        )
        log.error("%s", reason)
        self._restart(Restart(reason, truncate_at=point))
        raise NotFollowed(State.DIVERGED, reason)

    # ---- what comes in ----

    def _received(self, length: int) -> None:
        data = self._buffer[:length]
        if not self._welcome.done():
            self._received_welcome += bytes(data)
            try:
                welcome = frames.welcome_of(self._received_welcome)
            except frames.FrameError as error:
                raise FollowError(str(error)) from None
            if welcome is not None:
                self._welcome.set_result(welcome)
            return
        session = self._session
        session.status.bytes_received += length
        try:
            self._reader.take(data)
        except frames.FrameError as error:
            raise FollowError(str(error)) from None
        finally:
            session.append()

    def _begin_piece(self, piece: PieceHeader) -> bool:
        """Before the bytes of a piece are taken. An epoch is in the file before the first of its bytes is in the log.
        An empty log begins where the first piece does: until then heartbeats report nothing."""
        if self._is_empty and piece.size > 0:
            self._is_empty = False
            self._session.follower.begin(piece.offset, 0)
        epoch = piece.epoch
        if epoch.number > self._epochs.last and not self._is_empty:
            self._note_epoch(epoch)
        self._session.confirmed_log.confirmed(piece.confirmed)
        return not self._is_empty

    def _note_epoch(self, epoch: Epoch) -> None:
        try:
            self._epochs.append(*epoch)
        except ValueError as error:
            raise frames.FrameError(f"the master's epochs do not follow each other: {error}") from None
        log.info("the master's epoch %d begins at %d", *epoch)

    # ---- what goes out ----

    def report(self, durable: int) -> None:
        self.stream.write(frames.acknowledgement(durable))

    async def check(self) -> None:
        await self._end.check()

    def closed(self) -> None: ...
