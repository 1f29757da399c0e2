"""FireArrowSender: the master's end of FireArrow's wire: one slave that is FireArrow as well. Loop thread.

Nothing but the summary of our log leaves before the slave has proved that it knows the secret, and nothing that it
sends counts before. After the handshake it may ask for checksums; by its first acknowledgement its log is one with ours
up to its end, and from there it is sent the journal and the log.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol, cast

from firearrow._native.replication.read_ahead import ReadAhead
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.peer import ip_text
from firearrow.broker.replication.log import common_point
from firearrow.broker.replication.session.expected_replicas import Place
from firearrow.broker.replication.session.master_api import address_or_none
from firearrow.broker.replication.session.slave_stream import READ_AGAIN_S
from firearrow.broker.replication.session.wire import Traffic
from firearrow.broker.replication.wires.firearrow import frames
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog, agree, check_pair
from firearrow.broker.replication.wires.firearrow.frames import (
    Frame,
    FrameDecoder,
    FrameError,
    Heartbeat,
    Kind,
)
from firearrow.broker.replication.wires.firearrow.handshake import (
    MAGIC,
    LogSummary,
    MasterHandshake,
    Refused,
    refusal,
    refused,
)

TURN_BYTES = 1 << 20
PIECE_BYTES = 256 << 10
UNSENT_BYTES_MAX = 16 << 20
"""Most bytes of the journal and of changed tables that wait for a slave; with more, it joins again."""
TRANSPORT_BYTES = 1 << 20


class FireArrowHost(Protocol):
    """What a connection asks of the master."""

    secret: bytes

    def feed(self) -> None:
        """Queue what the journal has noted at all slaves."""

    def confirmed(self, connection: "FireArrowSender") -> int:
        """Up to where readers of its slave may see what it has."""

    def now_ms(self) -> int: ...
    def proved(self, connection: "FireArrowSender") -> None:
        """Its slave knows the secret. Refused, OSError."""

    def joined(self, connection: "FireArrowSender") -> None:
        """Queue the whole tables. OSError, ValueError."""

    def acknowledged(self, connection: "FireArrowSender") -> None: ...
    def left(self, connection: "FireArrowSender", why: str, code: int) -> None: ...


class FireArrowSender(asyncio.Protocol):
    """`code` of `left`: a RefusalCode, by either broker; -1: no refusal."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        traffic: Traffic,
        store: MessageStore,
        own_log: OwnLog,
        service: FireArrowHost,
    ) -> None:
        self.traffic = traffic
        self._loop = loop
        self._store = store
        self._log = own_log
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._magic = b""
        self._decoder = FrameDecoder({Kind.HELLO})
        self._handshake = MasterHandshake(service.secret)
        self._answered = self._is_again = False
        self.summary: LogSummary | None = None
        """The slave's; they count once `is_proved`."""
        self.announced: LogSummary | None = None
        """Ours, as the slave knows them."""
        self.is_proved = self.is_closed = self._is_full = False
        self._read_ahead = ReadAhead(store)
        self._queued: deque[bytes] = deque()
        self._queued_bytes = 0
        self.sent = self.end = self.flushed = -1
        self.noted = 0
        self._confirmed_sent = -1

    @property
    def is_newcomer(self) -> bool:
        """Its slave has not proved that it knows the secret."""
        return not self.is_proved

    @property
    def has_joined(self) -> bool:
        """Its slave's log is one with ours up to its end, and it is sent what comes then."""
        return self.sent >= 0 and not self.is_closed

    @property
    def place(self) -> Place:
        host, summary = ip_text(self.traffic.remote[0]), self.summary
        if summary is None:
            return Place("", 0, host, 0)
        if summary.member is None:  # an earlier FireArrow
            return Place(summary.node.hex(), 0, host, 0)
        address = address_or_none(summary.member.address, host) or (host, 0)
        return Place(summary.node.hex(), summary.member.broker_id, *address)

    def details(self) -> dict[str, object]:
        if self.summary is None:
            return {}
        return {
            "brokerId": 0 if self.summary.member is None else self.summary.member.broker_id,
            "node": self.summary.node.hex(),
            "flushedOffset": self.flushed,
            "notedBytes": self.noted,
        }

    # ---- the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=TRANSPORT_BYTES)
        if self.is_closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.send()

    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self.traffic.last_read = self._loop.time()
        try:
            if len(self._magic) < len(MAGIC):
                data = self._without_magic(data)
            for frame in self._decoder.feed(data):
                if not self.is_closed:
                    self._received(frame)
        except Refused as error:
            self.refuse(error.code, str(error))
        except (FrameError, ValueError, LookupError) as error:
            self.close(f"its connection was closed: {error}")
        except OSError as error:
            self.close(f"it cannot join: {error}")

    def _without_magic(self, data: bytes) -> bytes:
        wanted = len(MAGIC) - len(self._magic)
        self._magic += data[:wanted]
        if not MAGIC.startswith(self._magic):
            raise FrameError("it speaks neither Apache's wire nor FireArrow's")
        return data[wanted:]

    # ---- from the slave ----

    def _received(self, frame: Frame) -> None:
        if frame.kind is Kind.REFUSAL and self._answered:
            theirs = refused(frame.body)
            return self.close(str(theirs), theirs.code)
        if self.summary is None:
            return self._greeted(frame)
        if not self.is_proved:
            return self._prove(frame)
        if frame.kind is Kind.ACK:
            return self._acknowledged(frames.ack(frame.body))
        if frame.kind is Kind.ASK and self.sent < 0:
            sums = common_point.answer(self._log.checksums, frames.ask(frame.body))
            return self._write(frames.checksums_frame(sums))
        raise FrameError(f"a {frame.kind.name} frame is not expected here")

    def _greeted(self, frame: Frame) -> None:
        """Answer with our summary."""
        summary = self._handshake.greeted(frame)
        identity = self._log.identity
        check_pair(identity.offered, summary.pair)
        ours = self._log.summary(pair=identity.offered, begins=True)
        # a slave of a newer epoch refuses us, once it has proved what it states
        is_older = summary.epoch > ours.epoch
        agreed = None if is_older else agree(ours, summary)
        point = 0 if agreed is None else self._log.common_point(summary, agreed)
        self.summary, self.announced = summary, ours
        self._decoder.allowed = frames.TO_MASTER | {Kind.PROOF}
        self._answered = True
        self._write(self._handshake.answer(ours, point))

    def _prove(self, frame: Frame) -> None:
        if frame.kind is not Kind.PROOF:
            raise FrameError(f"a {frame.kind.name} frame comes before the proof")
        self._handshake.proved(frame)
        self._service.proved(self)
        self.is_proved = True
        self._decoder.allowed = frames.TO_MASTER

    def _acknowledged(self, ack: frames.Ack) -> None:
        assert self.summary is not None
        if self.sent < 0:
            self._begin(ack.written)
        if not self.end <= ack.written <= self.sent or ack.flushed > ack.written:
            raise FrameError(
                f"it acknowledged the log up to {ack.written}, flushed to {ack.flushed}, but had {self.end} and was "
                f"sent {self.sent}"
            )
        self.end, self.flushed, self.noted = ack.written, ack.flushed, ack.noted
        self._service.acknowledged(self)
        if not self.is_closed:
            self.send()

    def _begin(self, end: int) -> None:
        """The slave's log ends here, and is ours up to here."""
        assert self.summary is not None
        if end != self.summary.end:
            raise FrameError(f"its log ends at {end}, not at {self.summary.end} as it announced")
        self._service.joined(self)
        self.sent = self._store.min_physical if end == 0 else end
        self.end = end

    # ---- to the slave ----

    def queue(self, frames: Iterable[bytes]) -> None:
        """Frames that go before what the log has now."""
        if self.sent < 0 or self.is_closed:
            return
        self.queue_first(frames)
        if self._queued_bytes > UNSENT_BYTES_MAX:
            self.close(
                f"it reads too slowly: {self._queued_bytes} bytes of the journal and of tables wait for it"
            )

    def queue_first(self, frames: Iterable[bytes]) -> None:
        """The whole tables of a slave that joins, however large they are."""
        for frame in frames:
            self._queued.append(frame)
            self._queued_bytes += len(frame)

    def send(self) -> None:
        """Send what there is and the transport takes; the rest follows."""
        self._is_again = False
        if self.sent < 0 or self.is_closed or self._is_full:
            return
        self._service.feed()
        if self.is_closed:
            return
        while self._queued and not self._is_full:
            frame = self._queued.popleft()
            self._queued_bytes -= len(frame)
            self._write(frame)
        if not self._queued:
            try:
                self._send_log()
            except (OSError, LookupError) as error:
                self.close(str(error))

    def _send_log(self) -> None:
        """OSError; LookupError: the file was deleted."""
        left = TURN_BYTES
        while left > 0 and not self._is_full and self.sent < self._store.written:
            view = self._store.log_bytes(self.sent, PIECE_BYTES)
            if view is None:
                raise LookupError(
                    f"the log from {self.sent} on has expired before it was sent: start the slave with an empty "
                    "store, and set a longer fileReservedTime"
                )
            with view:
                ready = self._read_ahead.ready(self.sent, view)
                if ready == 0:
                    return self._send_soon(READ_AGAIN_S)
                epoch, following = self._log.epoch_at(self.sent)
                length = ready if following is None else min(ready, following - self.sent)
                with view[:length] as part:
                    parts = frames.log_frame(self.sent, epoch, self._confirmed(), part)
                    frame = b"".join(parts)
            self._write(frame)
            self.sent += length
            self.traffic.sent_bytes += length
            left -= length
        if left <= 0 and not self._is_full:
            self._send_soon(0)
        return None

    def _send_soon(self, after_s: float) -> None:
        if not self._is_again:
            self._is_again = True
            self._loop.call_later(after_s, self.send)

    def heartbeat(self) -> None:
        if self.sent >= 0 and not self._is_full:
            beat = Heartbeat(self._store.written, self._confirmed(), self._service.now_ms())
            self._write(frames.heartbeat_frame(beat))

    def _confirmed(self) -> int:
        """For a frame that is sent now."""
        self._confirmed_sent = self._service.confirmed(self)
        return self._confirmed_sent

    @property
    def waits_for_confirmed(self) -> bool:
        """Its readers may see more of what was sent than it knows."""
        return self.sent >= 0 and self._confirmed_sent < min(self._service.confirmed(self), self.sent)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_closed:
            self._transport.write(data)
            self.traffic.last_written = self._loop.time()

    # ---- the end ----

    def refuse(self, code: int, why: str) -> None:
        """Send the slave the reason, and close."""
        if len(self._magic) == len(MAGIC):
            self._write((b"" if self._answered else MAGIC) + refusal(code, why))
        self.close(why, code)

    def finish(self) -> None:
        """Close once the transport has sent what it has."""
        if self._transport is not None:
            self._transport.close()
        self.is_closed = True

    def close(self, why: str = "", code: int = -1) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._queued.clear()
        self._queued_bytes = 0
        if self._transport is not None:
            if code >= 0:
                self._transport.close()
            else:
                self._transport.abort()
        self._service.left(self, why, code)
