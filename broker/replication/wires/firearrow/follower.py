"""PairClient: the slave's end of a connection of our own wire: follows the log, the journal and the tables of a master
that is FireArrow as well. Loop thread.

Every frame has a checksum, and every record in it is checked before it is appended: what came damaged is asked for
again.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from firearrow._native.replication.follower import Follower, FollowError
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.base.tls import handshake_fault
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.log.common_point import LogsDiffer, find_common_point
from firearrow.broker.replication.log.confirmed_offset import ConfirmedLog
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, may_follow
from firearrow.broker.replication.session.master_api import (
    Master,
    MasterError,
    MasterStream,
    NotFollowed,
    SlaveStatus,
    State,
)
from firearrow.broker.replication.wires.firearrow import frames
from firearrow.broker.replication.wires.firearrow.agreement import Agreement, PairLog, agree, check_pair
from firearrow.broker.replication.wires.firearrow.frames import Ack, Frame, FrameDecoder, FrameError, Kind
from firearrow.broker.replication.wires.firearrow.handshake import (
    ASK_FOR_CHECKSUMS,
    LATEST,
    LATEST_MEMBER,
    MAGIC,
    VERSION,
    VERSION_MEMBER,
    Answer,
    Facts,
    RefusalCode,
    Refused,
    SlaveHandshake,
    refusal,
    refused,
    secret_fault,
)
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower
from firearrow.broker.replication.wires.firearrow.tables import FollowedTables

log = logging.getLogger("firearrow.slave")

NOT_HERE = "This broker is a slave, and offsets are committed to its master."
CONNECT_S, HANDSHAKE_S = 3.0, 10.0
TICK_S = 0.5
STATES: dict[int, State] = {RefusalCode.DIVERGED: State.DIVERGED, RefusalCode.BEHIND: State.BEHIND}


async def spoken_version(master: Master) -> int:
    """The version of FireArrow's wire that both speak; 0: the master is not FireArrow, or does not replicate by that
    wire. OSError, TimeoutError, MasterError."""
    try:
        answer = await master.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
    except MasterError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return 0
        raise
    if answer.ext.get(VERSION_MEMBER) != str(VERSION):
        return 0
    latest = answer.ext.get(LATEST_MEMBER, "")
    return LATEST if latest.isdecimal() and len(latest) < 9 and int(latest) >= LATEST else VERSION


@dataclass(frozen=True, slots=True)
class FollowedParts:
    """What a slave needs to follow a FireArrow master. `joined(facts)`: called with a master's once it has taken it;
    OSError. `tls()`: the context of connections to others; None: plain."""

    log: PairLog
    tables: FollowedTables
    journal: JournalFollower
    secret: bytes
    joined: Callable[[Facts], None]
    tls: Callable[[], ssl.SSLContext | None]


class PairClient:
    def __init__(
        self,
        context: BrokerContext,
        parts: FollowedParts,
        follower: Follower,
        status: SlaveStatus,
        confirmed_log: ConfirmedLog,
    ) -> None:
        self._loop = context.loop
        self._store = context.store
        self._write_batch = context.write_batch
        self._journal = context.journal
        self._config = context.config
        self._offsets = context.tables.offsets
        self._clock = context.clock
        self._restart = context.restart
        self._parts = parts
        self._follower = follower
        self._status = status
        self._confirmed_log = confirmed_log
        self._stream: PairStream | None = None
        self._durable = self._noted = 0
        self.has_followed = False
        """Whether the journal has a master's entries: it has to outlive the store's clean end."""

    async def follow(self, host: str, port: int, version: int) -> None:
        """Until the connection ends, which is always an exception. `version`: of the handshake."""
        peer = (await self._loop.getaddrinfo(host, port))[0][4][0]
        fault = secret_fault(self._parts.secret, str(peer), option="haSecret")
        if fault:
            raise NotFollowed(State.REFUSED, fault)
        context = self._parts.tls()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, stream = await self._loop.create_connection(
                    lambda: PairStream(self._loop.time),
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise
            raise handshake_fault(host, port, error) from None
        self._status.local, self._status.ha_address = stream.local, f"{host}:{port}"
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await self._shake_hands(stream, f"{host}:{port}", version)
            self._begin(stream, first)
            await self._watch(stream)
        except Refused as error:
            raise NotFollowed(STATES.get(error.code, State.REFUSED), str(error)) from None
        except (FrameError, LookupError) as error:
            raise FollowError(str(error)) from None
        finally:
            self._stream = None
            self._offsets.not_here = ""
            self._status.local = None
            self._status.bytes_per_second = 0
            stream.finish()

    # ---- the handshake ----

    async def _shake_hands(self, stream: "PairStream", master: str, version: int) -> int:
        """Returns where the master's log begins. Refused, NotFollowed, FrameError, OSError."""
        identity, epochs = self._parts.log.identity, self._parts.log.epochs
        ours = self._parts.log.facts(pair=identity.pair)
        if version == VERSION:
            ours = ours._replace(member=None)
        handshake = SlaveHandshake(self._parts.secret, ours)
        stream.write(handshake.hello())
        received = await stream.frame()
        try:
            answer = handshake.answered(received)
        except Refused as error:
            if received.kind is not Kind.REFUSAL:
                stream.write(refusal(error.code, str(error)))
            raise
        stream.allow(frames.TO_SLAVE)
        stream.write(handshake.proof())
        try:
            agreed = self._agree(answer, ours)
            point = await self._common_point(stream, answer, agreed, ours)
        except Refused as error:
            stream.write(refusal(error.code, str(error)))
            raise
        identity.join(answer.facts.pair)
        if agreed.cuts:
            self._cut(point, ours.end, master)
        if epochs.entries != answer.facts.epochs:
            epochs.replace(answer.facts.epochs)
        self._parts.joined(answer.facts)
        self._note_end(answer.facts.end)
        return answer.facts.first

    def _agree(self, answer: Answer, ours: Facts) -> Agreement:
        """Refused: by us."""
        theirs, identity = answer.facts, self._parts.log.identity
        if theirs.epoch < ours.epoch:
            raise Refused(
                RefusalCode.OLD_EPOCH,
                f"the master is of epoch {theirs.epoch}, this store has epoch {ours.epoch}: follow the broker "
                "that was promoted",
            )
        if theirs.epoch > ours.epoch and ours.end and not may_follow(theirs.epoch, ours.epoch):
            raise Refused(
                RefusalCode.OTHER,
                f"the master is of epoch {theirs.epoch}, more than {EPOCH_JUMP_MAX} after {ours.epoch}, that of this "
                "store: find out who promoted it, or start again with an empty log (`firearrow replica rebuild`)",
            )
        if identity.separate_from(theirs.node):
            raise ConnectionError("this store was copied from the master's: it joins again with its new id")
        check_pair(theirs.pair, ours.pair)
        return agree(theirs, ours)

    async def _common_point(
        self, stream: "PairStream", answer: Answer, agreed: Agreement, ours: Facts
    ) -> int:
        """The agreed point, once the checksums have confirmed it. Refused: they do not."""
        if answer.common_point != ASK_FOR_CHECKSUMS:
            if answer.common_point != agreed.point:
                raise FrameError(f"the common point {answer.common_point} is not {agreed.point}")
            return agreed.point
        first = max(answer.facts.first, ours.first)
        search = find_common_point(self._parts.log.checksums, first, agreed.point)
        try:
            question = next(search)
            while True:
                stream.write(frames.ask_frame(question))
                received = await stream.frame()
                if received.kind is not Kind.CHECKSUMS:
                    raise FrameError(f"a {received.kind.name} frame came for a question")
                question = search.send(frames.checksums(received.body))
        except StopIteration as found:
            point = int(found.value)
        except LogsDiffer as error:
            raise Refused(RefusalCode.DIVERGED, f"{error}; decide which of the two is kept") from None
        if point != agreed.point:
            raise Refused(
                RefusalCode.DIVERGED,
                f"the two logs have other bytes from {point} on, although no other broker was promoted there: they are "
                "of different brokers, or one was changed; decide which of the two is kept",
            )
        return point

    def _cut(self, point: int, end: int, master: str) -> None:
        """Start again without what the pair does not have. NotFollowed, always."""
        reason = (
            f"the log from {point} to {end} is not the pair's, for {master} was promoted at {point}: it is kept under "
            "damaged/"
        )
        self._restart(Restart(reason, truncate_at=point))
        raise NotFollowed(State.DIVERGED, reason)

    # ---- one connection ----

    def _begin(self, stream: "PairStream", first: int) -> None:
        """OSError, FollowError."""
        self._stream = stream
        self.has_followed = True
        self._parts.journal.begin(self._store.written)
        self._durable, self._noted = self._store.written, 0
        self._report()  # where our log ends, as the first frame stated
        self._durable = self._follower.begin(first, 0)
        self._confirmed_log.confirmed(0)
        if not self._config.options.acting_master:  # it passes them on
            self._offsets.not_here = NOT_HERE
        self._status.enter(State.FOLLOWING)
        stream.take(self._received)

    async def _watch(self, stream: "PairStream") -> None:
        seen, seen_at = stream.received, self._loop.time()
        while True:
            done, _ = await asyncio.wait([stream.ended], timeout=TICK_S)
            if done:
                raise stream.ended.result()
            options, now, status = self._config.options, self._loop.time(), self._status
            if now - stream.read_at >= options.ha_housekeeping_ms / 1000:
                raise ConnectionError(f"the master sent nothing for {options.ha_housekeeping_ms} ms")
            status.bytes_per_second = int((stream.received - seen) / max(now - seen_at, TICK_S))
            seen, seen_at = stream.received, now
            now_ms = self._clock.now_ms()
            status.last_read_ms = now_ms - int(1000 * (now - stream.read_at))
            status.last_write_ms = now_ms - int(1000 * (now - stream.written_at))
            if await self._sync_notes() or now - stream.written_at >= options.ha_heartbeat_ms / 1000:
                self._report()

    async def _sync_notes(self) -> bool:
        """Under SYNC_FLUSH, sync entries that no record made durable. Whether there were any."""
        received = self._parts.journal.received_bytes
        if received == self._noted:
            return False
        if self._config.options.sync_flush:
            await asyncio.to_thread(self._journal.sync)
        self._noted = received
        return True

    def _note_end(self, end: int) -> None:
        self._status.master_end = end
        self._status.master_times.note(end, self._loop.time())

    # ---- what comes in ----

    def _received(self, frame: Frame) -> None:
        """Refused, FrameError, FollowError, OSError: close the connection."""
        if frame.kind is Kind.LOG:
            self._log(frames.log_piece(frame.body))
        elif frame.kind is Kind.JOURNAL:
            self._parts.journal.received(frame.body)
        elif frame.kind is Kind.TABLE:
            table = frames.table(frame.body)
            self._parts.journal.table(table.place, partial(self._parts.tables.take, table))
        elif frame.kind is Kind.HEARTBEAT:
            heartbeat = frames.heartbeat(frame.body)
            self._note_end(max(heartbeat.end, self._store.written))
            self._confirmed_log.confirmed(heartbeat.confirmed)
            self._report()
        elif frame.kind is Kind.REFUSAL:
            raise self._refusal(frame)
        else:
            raise FrameError(f"a {frame.kind.name} frame is not expected here")

    def _refusal(self, frame: Frame) -> Exception:
        error = refused(frame.body)
        identity = self._parts.log.identity
        if error.code == RefusalCode.SAME_NODE and identity.separate_from(identity.node):
            return ConnectionError("another store has the id of this one: it joins again with a new one")
        return error

    def _log(self, piece: frames.LogPiece) -> None:
        self._status.bytes_received += len(piece.data)
        end = piece.offset + len(piece.data)
        if end > self._status.master_end:
            self._note_end(end)
        self._confirmed_log.confirmed(piece.confirmed)
        self._follower.take(piece.offset, piece.data)
        try:
            while self._follower.append():
                self._commit()
        finally:
            self._commit()
        self._parts.journal.log_written(self._store.written)

    def _commit(self) -> None:
        if self._store.staged_bytes == 0:
            return
        end = self._store.written + self._store.staged_bytes
        queues = self._follower.drain_queues()
        received = self._parts.journal.received_bytes
        is_synced = self._config.options.sync_flush and self._journal.has_promises
        self._write_batch.on_durable(end, partial(self._stored, self._stream, end, queues))
        self._write_batch.commit()
        if is_synced:  # by the commit, before the records
            self._noted = received

    def _stored(
        self, stream: "PairStream | None", end: int, queues: list[tuple[str, int]], stored: bool
    ) -> None:
        if not stored:
            if stream is not None:
                stream.fail(OSError("what the master sent could not be written to the disk"))
            return
        self._durable = max(self._durable, end)
        self._confirmed_log.stored(end, queues)
        if stream is not None and stream is self._stream:
            self._report()

    def _report(self) -> None:
        if self._stream is not None:
            if not self._config.options.sync_flush:
                self._noted = self._parts.journal.received_bytes
            flushed = min(self._store.flushed, self._durable)
            self._stream.write(frames.ack_frame(Ack(self._durable, flushed, self._noted)))


class PairStream(MasterStream, asyncio.Protocol):
    """Frames of a connection: one after the other by `frame`, after `take` by its callback."""

    def __init__(self, loop_time: Callable[[], float]) -> None:
        super().__init__(loop_time)
        self._magic = b""
        self._decoder = FrameDecoder({Kind.ANSWER, Kind.REFUSAL})
        self._frames: deque[Frame] = deque()
        self._arrived = asyncio.Event()
        self._take: Callable[[Frame], None] | None = None

    def allow(self, kinds: frozenset[Kind]) -> None:
        self._decoder.allowed = kinds

    async def frame(self) -> Frame:
        """The next frame. The exception that ended the connection."""
        while not self._frames:
            if self.ended.done():
                raise self.ended.result()
            self._arrived.clear()
            await self._arrived.wait()
        return self._frames.popleft()

    def take(self, take: Callable[[Frame], None]) -> None:
        self._take = take
        while self._frames and not self.ended.done():
            self._handle(self._frames.popleft())

    def data_received(self, data: bytes) -> None:
        self.read_at = self._loop_time()
        if self.ended.done():
            return
        self.received += len(data)
        try:
            if len(self._magic) < len(MAGIC):
                wanted = len(MAGIC) - len(self._magic)
                self._magic, data = self._magic + data[:wanted], data[wanted:]
                if not MAGIC.startswith(self._magic):
                    raise FrameError("the master does not speak the wire of a pair")
            for frame in self._decoder.feed(data):
                if self._take is None:
                    self._frames.append(frame)
                elif not self.ended.done():
                    self._handle(frame)
        except FrameError as error:
            self.fail(error)
        self._arrived.set()

    def _handle(self, frame: Frame) -> None:
        assert self._take is not None
        try:
            self._take(frame)
        except Exception as error:  # the client tries again
            self.fail(error)

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._arrived.set()

    def finish(self) -> None:
        """Close once what was written is sent: it may be a refusal."""
        if self._transport is not None:
            self._transport.close()
