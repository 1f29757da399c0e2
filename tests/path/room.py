"""A store, a turn and a lane in this process, with connections that only remember what they are given."""

from pathlib import Path
from typing import Any, cast

from firearrow._native.path.fast import FastLane
from firearrow._native.path.gate import Gate
from firearrow._native.path.holds import Queue
from firearrow._native.path.lane import Front
from firearrow._native.path.news import News
from firearrow._native.path.send import Sender
from firearrow._native.path.turn import Turn
from firearrow._native.store.store import InnerMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.uniqueid import UniqueIds
from firearrow.broker.clock import ManualClock
from firearrow.broker.life.journal import Journal
from firearrow.broker.messageids import host_bytes
from firearrow.broker.peer import Peer
from firearrow.broker.stats import Stats
from tests.store.stores import open_store

HOST = host_bytes("127.0.0.1", 10911)


class Loop:
    """`turn` runs what was asked for soon."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any, *args: object) -> None:  # noqa: ANN401
        self.soon.append((callback, args))

    def time(self) -> float:
        return 1.0

    def turn(self) -> None:
        while self.soon:
            soon, self.soon = self.soon, []
            for callback, args in soon:
                callback(*args)


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: bytes) -> None:
        self.writes.append(data)


class Line(Front):
    """One connection; `slow` is what the lane did not take, parked with its answer as a handler would."""

    def __init__(self, room: "Room") -> None:
        super().__init__(room.loop, high_water=1 << 20)
        self.room = room
        self.slow: list[RemotingCommand] = []
        self.wire = Transport()
        self.lane = room.lane
        self.host = host_bytes("127.0.0.9", 999)
        self.connection_made(self.wire)  # type: ignore[arg-type]

    def received(self, command: RemotingCommand) -> None:
        self.slow.append(command)
        self.room.park(self, command)

    def lost(self, reason: Exception | None) -> None: ...
    def broken(self, fault: str) -> None: ...

    def reply(self, answer: RemotingCommand) -> None:
        self.send(answer.encode())

    def feed(self, *frames: bytes) -> None:
        data = b"".join(frames)
        room = self.get_buffer(-1)
        room[: len(data)] = data
        room.release()
        self.buffer_updated(len(data))

    def answers(self) -> list[tuple[int, int]]:
        """(opaque, code) of all that was written, in order."""
        return [(answer.opaque, answer.code) for answer in self.commands()]

    def commands(self) -> list[RemotingCommand]:
        """All that was written, in order."""
        return commands_in(b"".join(self.wire.writes))


class Room:
    def __init__(self, folder: Path, *, sync_flush: bool = False) -> None:
        self.loop = cast(Any, Loop())
        self.clock = ManualClock()
        self.store = open_store(folder, segment_bytes=1 << 20, sync_flush=sync_flush)
        self.stats = Stats("c", self.clock.now_ms())
        self.news: list[set[Queue]] = []
        self.syncs = 0
        news = News()
        news.listen(self.news.append, crowd=("all",))
        self.turn = Turn(
            self.loop, self.store, self.clock, sync_timeout_ms=1000, news=news,
            sync_soon=self._sync_soon, full=str, journal=Journal(folder / "journal", self.store.run, 0),
        )  # fmt: skip
        self.gate = Gate()
        self.gate.put("T", queues=2, sendable=True)
        ids = UniqueIds(HOST[:-4], 1, b"salt")
        self.sender = Sender(self.gate, self.store, self.turn, self.stats, self.clock, ids, HOST)
        self.stats.source(self.sender.count)
        self.sender.configure(b"CLUSTER\x01c\x02", {"MSG_REGION": "r"}, 0)
        self.lane = FastLane(self.sender, None)

    def park(self, line: Line, command: RemotingCommand) -> None:
        placed = self.store.put(
            InnerMessage("T", 0, b"slow", b"", born_timestamp=0, born_host=HOST, store_host=HOST),
            now_ms=self.clock.now_ms(),
        )
        peer: Peer = line  # type: ignore[assignment]
        self.turn.park(placed.end, ("T", 0), peer, command.answer(ResponseCode.SUCCESS))

    def _sync_soon(self) -> None:
        self.syncs += 1


def commands_in(data: bytes) -> list[RemotingCommand]:
    """Of whole frames, one behind the other."""
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        found.append(RemotingCommand.decode(data[:size]))
        data = data[size:]
    return found


def plain(
    opaque: int, *, topic: str = "T", queue_id: int = 0, oneway: bool = False, **properties: str
) -> bytes:
    pairs = {"UNIQ_KEY": f"{opaque:032X}"} | properties
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    return _send(RequestCode.SEND_MESSAGE_V2, opaque, topic, queue_id, b"body", text=text, oneway=oneway)


def batch(opaque: int, items: bytes, *, queue_id: int) -> bytes:
    return _send(RequestCode.SEND_BATCH_MESSAGE, opaque, "T", queue_id, items)


def _send(
    code: int, opaque: int, topic: str, queue_id: int, body: bytes, *, text: str = "", oneway: bool = False
) -> bytes:
    many = str(code == RequestCode.SEND_BATCH_MESSAGE).lower()
    fields = ("P", topic, "TBW102", "4", str(queue_id), "0", "1", "0", text, "0", "false", many)
    ext = dict(zip("abcdefghijkm", fields, strict=True))
    command = RemotingCommand.request(code, ext, body, oneway=oneway)
    command.opaque = opaque
    return command.encode()


def keyless(opaque: int) -> bytes:
    command = RemotingCommand.decode(plain(opaque))
    command.ext["i"] = "K\x01v\x02"
    return command.encode()


def delayed(opaque: int) -> bytes:
    """One that is not the lane's."""
    return plain(opaque, DELAY="1")
