"""AutoSwitchClient, AutoSwitchSlave: a slave under controllers, of Apache's master or ours. Loop thread.

The controllers report who the master is, the master where its replication port is (906) and which epochs it has. If our
log has more than it has in common with the master's, the broker starts again with its log truncated. Readers see the
log up to the confirmed offset that comes with each piece. Apache: AutoSwitchHAClient.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.replication.follower import Follower, FollowError
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.controller import frames
from firearrow.broker.replication.controller.client import Role
from firearrow.broker.replication.controller.frames import PieceHeader, Welcome
from firearrow.broker.replication.log.confirmed_offset import ConfirmedLog
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile, common_point
from firearrow.broker.replication.session.expected_replicas import ExpectedReplica, Place
from firearrow.broker.replication.session.master_api import (
    LogRange,
    Master,
    MasterError,
    Naming,
    NotFollowed,
    SlaveStatus,
    State,
    address_or_none,
)
from firearrow.broker.replication.slave import Slave
from firearrow.broker.replication.slave_client import (
    CONNECT_S,
    HAClient,
    ReplicationConnection,
)
from firearrow.broker.replication.tables.slave_tables import CopiedProgress
from firearrow.broker.services.registration import Connect

log = logging.getLogger("firearrow.slave")

WIRE_BYTES = 1 << 19
NO_NAMING = Naming(lambda: None, lambda: None, lambda: "")


class AppointedMaster(Master):
    """The master that the controllers named; what name servers report does not change it."""

    def __init__(self, connect: Connect) -> None:
        super().__init__(connect, "")

    def registered(self, ext: Mapping[str, str]) -> None:
        pass

    def appoint(self, text: str) -> None:
        """`text`: its address as host:port; one that is none leaves the slave without a master."""
        found = address_or_none(text)
        if found != self.address:
            self.close()
        self.address, self.ha_address = found, None
        self.is_online = found is not None

    async def ask_ha_address(self) -> Address:
        """OSError, TimeoutError, MasterError."""
        answer = await self.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        host = "" if self.address is None else self.address[0]
        found = address_or_none(answer.ext.get("masterHaAddress") or "", host)
        if found is None:
            raise MasterError(
                0, "the master has no replication port: it is none yet, or not under controllers"
            )
        self.ha_address = found
        return found


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


class AutoSwitchConnection(ReplicationConnection):
    """With a buffer of its own: the pieces are taken apart on the way to the follower's."""

    def __init__(
        self, follower: Follower, take: Callable[[int], None], loop_time: Callable[[], float]
    ) -> None:
        super().__init__(follower, take, loop_time)
        self._buffer = memoryview(bytearray(WIRE_BYTES))

    def received_bytes(self, length: int) -> memoryview:
        return self._buffer[:length]


class AutoSwitchClient(HAClient):
    """It waits until the controllers have named a master (`follow`)."""

    def __init__(
        self,
        context: BrokerContext,
        master: AppointedMaster,
        status: SlaveStatus,
        confirmed_log: ConfirmedLog,
        epochs: EpochFile,
    ) -> None:
        follower = Follower(context.store)
        super().__init__(context, master, status, confirmed_log, NO_NAMING, None, follower)
        self._appointed = master
        self._epochs = epochs
        self._role: Role | None = None
        self._restart = context.restart
        self._greeted: asyncio.Future[Welcome] | None = None
        self._received_welcome = b""
        self._reader = PieceReader(self._follower, self._begin_piece)
        self._is_empty = False

    def follow(self, role: Role) -> None:
        self._role = role
        if self._connection is not None:
            self._connection.fail(ConnectionError("the controllers named another master"))

    # ---- one connection ----

    async def _follow(self) -> None:
        if self._store.stopped is not None:
            raise NotFollowed(State.FAILED, self._store.stopped)
        if not self._store.writable:
            raise NotFollowed(State.FAILED, "the store takes no messages since the disk failed a write")
        role = self._role
        if role is None or self._appointed.address is None:
            raise ConnectionError("the controllers have not named a master yet")
        if self._config.options.sync_flush:
            await self._write_batch.settled()
        address = await self._appointed.ask_ha_address()
        self._greeted = self._loop.create_future()
        self._received_welcome = b""
        self._reader = PieceReader(self._follower, self._begin_piece)
        make = partial(AutoSwitchConnection, self._follower, self._received, self._loop.time)
        async with self._connected(make, address) as connection:
            self._switched = connection
            options = self._config.options
            connection.write(
                frames.greeting_frame(
                    frames.Greeting(role.number, options.from_last_file, options.async_learner)
                )
            )
            welcome = await self._welcome(connection)
            self._check_role(role)
            await self._meet(welcome)
            self._check_role(role)
            await self._serve(connection)

    def _check_role(self, role: Role) -> None:
        """Our log is truncated where an older master's ends only while that is the master. ConnectionError."""
        if self._role is not role:
            raise ConnectionError("the controllers named another master")

    async def _welcome(self, connection: AutoSwitchConnection) -> Welcome:
        assert self._greeted is not None
        await asyncio.wait(
            (self._greeted, connection.ended), timeout=CONNECT_S, return_when=asyncio.FIRST_COMPLETED
        )
        if self._greeted.done():
            return self._greeted.result()
        fault = connection.ended.result() if connection.ended.done() else None
        if isinstance(fault, FollowError):
            raise fault
        raise ConnectionError(
            "the master sent no handshake: set enableControllerMode there as here"
        ) from fault

    async def _meet(self, welcome: Welcome) -> None:
        """Find the common point; returns if our log ends there, and the follower is to go on from its end. NotFollowed;
        OSError, MasterError."""
        end = self._store.written
        self._note_end(welcome.end)
        self._is_empty = self._follower.is_empty
        if self._is_empty:
            self._asked = self._durable = 0
            return
        await self._check_common(welcome, end)
        self._asked = self._follower.begin(0, 0)
        self._durable = self._asked
        self._epochs.replace(epoch for epoch in welcome.epochs if epoch.start <= end)

    async def _check_common(self, welcome: Welcome, end: int) -> None:
        ours = self._epochs.entries
        point: int | None = end
        if ours:
            point = common_point(ours, end, welcome.epochs, welcome.end)
        if point is None or point < self._store.min_physical or (not ours and end > welcome.end):
            raise NotFollowed(
                State.DIVERGED,
                f"our log, to {end}, and the master's, to {welcome.end}, have no epoch in common: they are of "
                "different brokers; start this one with an empty store, or decide which of the logs is kept",
            )
        if point < end:
            self._truncate(point, end)
        master = await self._master.log_range()
        if end < master.begin:
            raise NotFollowed(
                State.BEHIND,
                f"our log ends at {end}, but the master's begins at {master.begin}, for it has deleted older files: "
                "start this slave with an empty store, or with a newer backup of the master's",
            )
        await self._compare(LogRange(master.begin, master.end))

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
        data = self._switched.received_bytes(length)
        if self._greeted is not None and not self._greeted.done():
            self._received_welcome += bytes(data)
            try:
                welcome = frames.welcome_of(self._received_welcome)
            except frames.FrameError as error:
                raise FollowError(str(error)) from None
            if welcome is not None:
                self._greeted.set_result(welcome)
            return
        self._status.bytes_received += length
        fault: FollowError | None = None
        try:
            self._reader.take(data)
        except FollowError as error:
            fault = error
        except frames.FrameError as error:
            fault = FollowError(str(error))
        try:
            while self._follower.append():
                self._commit()
        finally:
            self._commit()
        if fault is not None:
            raise fault

    def _begin_piece(self, piece: PieceHeader) -> bool:
        """Before the bytes of a piece are taken. An epoch is in the file before the first of its bytes is in the log.
        An empty log begins where the first piece does: until then heartbeats carry nothing."""
        if self._is_empty and piece.size > 0:
            self._is_empty = False
            self._follower.begin(piece.offset, 0)
        epoch = piece.epoch
        if epoch.number > self._epochs.last and not self._is_empty:
            self._note_epoch(epoch)
        self._confirmed_log.confirmed(piece.confirmed)
        return not self._is_empty

    def _note_epoch(self, epoch: Epoch) -> None:
        try:
            self._epochs.append(*epoch)
        except ValueError as error:
            raise frames.FrameError(f"the master's epochs do not follow each other: {error}") from None
        log.info("the master's epoch %d begins at %d", *epoch)

    def _report(self) -> None:
        if self._connection is not None:
            self._connection.write(frames.acknowledgement(max(self._durable, self._asked)))


class AutoSwitchSlave(Slave):
    """A slave whose master the controllers name, by `follow`."""

    def __init__(
        self,
        context: BrokerContext,
        arrivals: ArrivalNotifier,
        epochs: EpochFile,
        *,
        connect: Connect,
        progress: CopiedProgress,
    ) -> None:
        self._epochs = epochs
        self._role: Role | None = None
        super().__init__(
            context,
            arrivals,
            connect=connect,
            naming=NO_NAMING,
            progress=progress,
            parts=None,
        )

    def _make_master(self, connect: Connect, options: Options) -> Master:
        self._appointed = AppointedMaster(connect)
        return self._appointed

    def _make_client(self, context: BrokerContext) -> HAClient:
        self._switched = AutoSwitchClient(
            context, self._appointed, self._status, self._confirmed_log, self._epochs
        )
        return self._switched

    def follow(self, role: Role) -> None:
        """Follow this master from now on."""
        self._role = role
        self._expected.expect(number for number in role.members.numbers if number != role.number)
        self._appointed.appoint(role.address)
        self._switched.follow(role)

    def _master_place(self) -> Place:
        return Place("", 0 if self._role is None else self._role.master, super()._master_place().host, 0)

    def _is_us(self, replica: ExpectedReplica) -> bool:
        return self._role is not None and replica.broker_id == self._role.number

    def status(self) -> dict[str, object]:
        return super().status() | {
            "epoch": self._epochs.last,
            "confirmed": self._confirmed_log.offset,
        }
