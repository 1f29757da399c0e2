"""FireArrowFollower: the slave's end of FireArrow's wire: follows the log, the journal and the tables of a master that
is FireArrow as well. Loop thread.

Every frame has a checksum, and every record in it is checked before it is appended: what came damaged is asked for
again.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from firearrow._native.replication.follower import FollowError
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.tls import handshake_fault
from firearrow.broker.context.broker_context import BrokerContext, Restart
from firearrow.broker.replication.log.common_point import LogsDiffer, find_common_point
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, may_follow
from firearrow.broker.replication.session.follower_session import FollowerSession
from firearrow.broker.replication.session.master_api import Master, MasterError
from firearrow.broker.replication.session.slave_status import NotFollowed, State
from firearrow.broker.replication.session.wire import MasterStream
from firearrow.broker.replication.wires.firearrow import frames
from firearrow.broker.replication.wires.firearrow.agreement import Agreement, OwnLog, agree, check_pair
from firearrow.broker.replication.wires.firearrow.frames import Ack, Frame, FrameDecoder, FrameError, Kind
from firearrow.broker.replication.wires.firearrow.handshake import (
    ASK_FOR_CHECKSUMS,
    LATEST,
    LATEST_MEMBER,
    MAGIC,
    VERSION,
    VERSION_MEMBER,
    Answer,
    LogSummary,
    RefusalCode,
    Refused,
    SlaveHandshake,
    of_version,
    refusal,
    refused,
    secret_fault,
)
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower
from firearrow.broker.replication.wires.firearrow.tables import FollowedTables

NOT_HERE = "This broker is a slave, and offsets are committed to its master."
HANDSHAKE_S = 10.0
READ_BYTES = 1 << 18
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
    is_number = latest.isascii() and latest.isdecimal() and len(latest) < 9
    return min(max(int(latest), VERSION), LATEST) if is_number else VERSION


@dataclass(frozen=True, slots=True)
class FollowedParts:
    """What a slave needs to follow a FireArrow master. `tls()`: the context of connections to others; None: plain."""

    log: OwnLog
    tables: FollowedTables
    journal: JournalFollower
    secret: bytes
    tls: Callable[[], ssl.SSLContext | None]


class FireArrowFollower:
    """`version`: of the handshake. `on_joined(summary)`: called with the master's once it has taken this slave;
    OSError."""

    pushes_tables = True

    def __init__(
        self,
        context: BrokerContext,
        session: FollowerSession,
        parts: FollowedParts,
        version: int,
        on_joined: Callable[[LogSummary], None],
    ) -> None:
        self._session = session
        self._parts = parts
        self._version = version
        self._on_joined = on_joined
        self._journal: Journal = context.journal
        self._offsets = context.tables.offsets
        self._restart = context.restart
        self._noted = 0
        self._buffer = bytearray(READ_BYTES)
        self.stream = MasterStream(session.loop, self._buffer, self._take, lingers=True)
        self._frames = FrameQueue(self.stream.ended)

    async def open(self) -> None:
        session = self._session
        address = session.master.replication_address(knows_wire=True)
        host, port = address
        peer = (await session.loop.getaddrinfo(host, port))[0][4][0]
        fault = secret_fault(self._parts.secret, str(peer), option="haSecret")
        if fault:
            raise NotFollowed(State.REFUSED, fault)
        context = self._parts.tls()
        try:
            await session.connect(self.stream, address, context)
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise
            raise handshake_fault(host, port, error) from None
        with _faults():
            async with asyncio.timeout(HANDSHAKE_S):
                first = await self._shake_hands(f"{host}:{port}")
            self._begin(first)

    def closed(self) -> None:
        self._offsets.not_here = ""

    # ---- the handshake ----

    async def _shake_hands(self, master: str) -> int:
        """Returns where the master's log begins. Refused, NotFollowed, FrameError, OSError."""
        stream = self.stream
        identity, epochs = self._parts.log.identity, self._parts.log.epochs
        ours = of_version(self._parts.log.summary(pair=identity.pair), self._version)
        handshake = SlaveHandshake(self._parts.secret, ours)
        stream.write(handshake.hello())
        received = await self._frames.frame()
        try:
            answer = handshake.answered(received)
        except Refused as error:
            if received.kind is not Kind.REFUSAL:
                stream.write(refusal(error.code, str(error)))
            raise
        self._frames.allow(frames.TO_SLAVE)
        stream.write(handshake.proof())
        try:
            agreed = self._agree(answer, ours)
            point = await self._common_point(answer, agreed, ours)
        except Refused as error:
            stream.write(refusal(error.code, str(error)))
            raise
        identity.join(answer.summary.pair)
        if agreed.cuts:
            self._cut(point, ours.end, master)
        if epochs.entries != answer.summary.epochs:
            epochs.replace(answer.summary.epochs)
        self._on_joined(answer.summary)
        self._session.note_end(answer.summary.end)
        return answer.summary.first

    def _agree(self, answer: Answer, ours: LogSummary) -> Agreement:
        """Refused: by us."""
        theirs, identity = answer.summary, self._parts.log.identity
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

    async def _common_point(self, answer: Answer, agreed: Agreement, ours: LogSummary) -> int:
        """The agreed point, once the checksums have confirmed it. Refused: they do not."""
        if answer.common_point != ASK_FOR_CHECKSUMS:
            if answer.common_point != agreed.point:
                raise FrameError(f"the common point {answer.common_point} is not {agreed.point}")
            return agreed.point
        first = max(answer.summary.first, ours.first)
        search = find_common_point(self._parts.log.checksums, first, agreed.point)
        try:
            question = next(search)
            while True:
                self.stream.write(frames.ask_frame(question))
                received = await self._frames.frame()
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
        """Start again without what only this log has. NotFollowed, always."""
        reason = (
            f"the log from {point} to {end} is not the master's, for {master} was promoted at {point}: it is kept "
            "under damaged/"
        )
        self._restart(Restart(reason, truncate_at=point))
        raise NotFollowed(State.DIVERGED, reason)

    # ---- one connection ----

    def _begin(self, first: int) -> None:
        """OSError, FollowError."""
        session = self._session
        written = session.store.written
        self._parts.journal.begin(written)
        self._noted = 0
        self.report(written)  # where our log ends, as the first frame stated
        session.durable = session.follower.begin(first, 0)
        session.confirmed_log.confirmed(0)
        if not session.config.options.acting_master:  # it passes them on
            self._offsets.not_here = NOT_HERE
        self._frames.take(self._received)

    def report(self, durable: int) -> None:
        if not self._session.config.options.sync_flush:
            self._noted = self._parts.journal.received_bytes
        flushed = min(self._session.store.flushed, durable)
        self.stream.write(frames.ack_frame(Ack(durable, flushed, self._noted)))

    async def check(self) -> None:
        """Under SYNC_FLUSH, sync entries that no record made durable."""
        received = self._parts.journal.received_bytes
        if received == self._noted:
            return
        if self._session.config.options.sync_flush:
            await asyncio.to_thread(self._journal.sync)
        self._noted = received
        self.report(self._session.durable)

    # ---- what comes in ----

    def _take(self, length: int) -> None:
        with _faults():
            self._frames.feed(bytes(self._buffer[:length]))

    def _received(self, frame: Frame) -> None:
        """Refused, FrameError, FollowError, OSError: close the connection."""
        session = self._session
        if frame.kind is Kind.LOG:
            self._append(frames.log_piece(frame.body))
        elif frame.kind is Kind.JOURNAL:
            self._parts.journal.received(frame.body)
        elif frame.kind is Kind.TABLE:
            table = frames.table(frame.body)
            self._parts.journal.table(table.place, partial(self._parts.tables.take, table))
        elif frame.kind is Kind.HEARTBEAT:
            heartbeat = frames.heartbeat(frame.body)
            session.note_end(max(heartbeat.end, session.store.written))
            session.confirmed_log.confirmed(heartbeat.confirmed)
            self.report(session.durable)
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

    def _append(self, piece: frames.LogPiece) -> None:
        session = self._session
        session.status.bytes_received += len(piece.data)
        end = piece.offset + len(piece.data)
        if end > session.status.master_end:
            session.note_end(end)
        session.confirmed_log.confirmed(piece.confirmed)
        session.follower.take(piece.offset, piece.data)
        written, received = session.store.written, self._parts.journal.received_bytes
        is_synced = session.config.options.sync_flush and self._journal.has_promises
        try:
            session.append()
        finally:
            if is_synced and session.store.written > written:  # by the commit, before the records
                self._noted = received
        self._parts.journal.log_written(session.store.written)


class FrameQueue:
    """Frames of a connection: one after the other by `frame`, after `take` by its callback. `ended`: of the
    connection; no frame is taken then."""

    def __init__(self, ended: asyncio.Future[Exception]) -> None:
        self._ended = ended
        self._magic = b""
        self._decoder = FrameDecoder({Kind.ANSWER, Kind.REFUSAL})
        self._frames: deque[Frame] = deque()
        self._arrived = asyncio.Event()
        self._take: Callable[[Frame], None] | None = None
        ended.add_done_callback(lambda _: self._arrived.set())

    def allow(self, kinds: frozenset[Kind]) -> None:
        self._decoder.allowed = kinds

    async def frame(self) -> Frame:
        """The next frame. The exception that ended the connection."""
        while not self._frames:
            if self._ended.done():
                raise self._ended.result()
            self._arrived.clear()
            await self._arrived.wait()
        return self._frames.popleft()

    def take(self, take: Callable[[Frame], None]) -> None:
        """What `take` raises."""
        self._take = take
        while self._frames and not self._ended.done():
            take(self._frames.popleft())

    def feed(self, data: bytes) -> None:
        """FrameError, and what the callback raises."""
        if len(self._magic) < len(MAGIC):
            wanted = len(MAGIC) - len(self._magic)
            self._magic, data = self._magic + data[:wanted], data[wanted:]
            if not MAGIC.startswith(self._magic):
                raise FrameError("the master does not speak FireArrow's wire")
        for frame in self._decoder.feed(data):
            if self._take is None:
                self._frames.append(frame)
                self._arrived.set()
            elif not self._ended.done():
                self._take(frame)


@contextmanager
def _faults() -> Iterator[None]:
    """NotFollowed: one of the two refuses the other. FollowError: the master sent what cannot be followed."""
    try:
        yield
    except Refused as error:
        raise NotFollowed(STATES.get(error.code, State.REFUSED), str(error)) from None
    except (ValueError, LookupError) as error:
        raise FollowError(str(error)) from None
