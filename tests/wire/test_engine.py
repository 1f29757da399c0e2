"""Engine: many sockets in one pass, one write each; floods, slow readers, cut frames and faults harm nobody else."""

import asyncio
import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.conn import Conn
from firearrow._native.wire.engine import Engine, Wire
from tests.wire.test_conn import Echo

REQUESTS = 400
BODY = bytes(range(256))
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = LOOPS[request.param]()
    yield loop
    loop.close()


class Room:
    """An engine, its connections, and the ends of their peers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.engine = Engine(loop)
        self.peers: list[socket.socket] = []
        self.faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.faults.append(context))

    def join(self, conn: Conn) -> tuple[socket.socket, Wire]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(5)
        self.peers.append(theirs)
        return theirs, self.engine.add(ours, conn)

    def join_by_tcp(self, conn: Conn) -> tuple[socket.socket, Wire]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            peer = socket.create_connection(listening.getsockname(), timeout=5)
            accepted, _ = listening.accept()
        self.peers.append(peer)
        return peer, self.engine.add(accepted, conn)

    def echo(self, answer_bytes: int | None = 0, **limits: int) -> tuple[Echo, socket.socket, Wire]:
        conn = Echo(self.loop, answer_bytes, **limits)
        return conn, *self.join(conn)

    def until(self, told: Callable[[], object], within_s: float = 5) -> None:
        async def waiting() -> None:
            async with asyncio.timeout(within_s):
                while not told():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

        self.loop.run_until_complete(waiting())

    def turns(self, count: int = 5) -> None:
        async def some() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())


@pytest.fixture
def room(loop: asyncio.AbstractEventLoop) -> Iterator[Room]:
    room = Room(loop)
    yield room
    for peer in room.peers:
        peer.close()
    room.turns(20)
    room.engine.close()


def frame(opaque: int = 1, body: bytes = b"") -> bytes:
    command = RemotingCommand.request(11, {}, body=body)
    command.opaque = opaque
    return command.encode()


def answers(peer: socket.socket, count: int) -> list[RemotingCommand]:
    """Exactly so many, read by somebody in no hurry."""
    found, held = [], b""
    while len(found) < count:
        piece = peer.recv(1 << 16)
        assert piece, "closed"
        held += piece
        while len(held) >= 4 and len(held) >= (size := 4 + struct.unpack(">I", held[:4])[0]):
            found.append(RemotingCommand.decode(held[:size]))
            held = held[size:]
    assert held == b""
    return found


def test_requests_of_one_pass_are_answered_by_one_write_each(room: Room) -> None:
    several = [room.echo() for _ in range(10)]
    for _, peer, _ in several:
        peer.sendall(b"".join(frame(number) for number in range(20)))
    room.until(lambda: all(len(conn.commands) == 20 for conn, _, _ in several))
    for _, peer, _ in several:
        assert [answer.opaque for answer in answers(peer, 20)] == list(range(20))


def test_what_is_planned_in_a_pass_runs_behind_its_last_socket(room: Room) -> None:
    seen: list[str] = []

    class Planning(Conn):
        def received(self, command: RemotingCommand) -> None:
            assert room.engine.passing
            seen.append("frame")
            room.engine.call_soon(lambda: seen.append("planned"))

    for _ in range(4):  # so many are served before a pass looks at the clock
        peer, _ = room.join(Planning(room.loop))
        peer.sendall(frame())
    room.until(lambda: len(seen) == 8)
    assert seen == ["frame"] * 4 + ["planned"] * 4
    room.engine.call_soon(lambda: seen.append("later"))
    room.until(lambda: seen[-1] == "later")


def test_what_that_plans_comes_right_behind_it_and_the_rest_in_the_loops_next_turn(room: Room) -> None:
    seen: list[str] = []

    def first() -> None:
        room.loop.call_soon(seen.append, "loop")
        room.engine.call_soon(second)
        seen.append("first")

    def second() -> None:
        room.engine.call_soon(lambda: seen.append("third"))
        seen.append("second")

    class Planning(Conn):
        def received(self, command: RemotingCommand) -> None:
            room.engine.call_soon(first)

    peer, _ = room.join(Planning(room.loop))
    peer.sendall(frame())
    room.until(lambda: len(seen) == 4)
    assert seen == ["first", "second", "loop", "third"]


@pytest.mark.parametrize("cut", [1, 3, 7, 50])
def test_frames_come_out_whole_whatever_the_cuts(room: Room, cut: int) -> None:
    conn, peer, _ = room.echo(None)
    data = b"".join(frame(number, BODY) for number in range(3))
    for at in range(0, len(data), cut):
        peer.sendall(data[at : at + cut])
        room.turns(3)
    room.until(lambda: len(conn.commands) == 3)
    assert [command.body for command in conn.commands] == [BODY] * 3


def test_a_frame_larger_than_the_window_comes_whole(room: Room) -> None:
    conn, peer, _ = room.echo(None)
    body = bytes(3_000_000)
    peer.setblocking(False)
    data = memoryview(frame(1, body))

    def fed() -> bool:
        nonlocal data
        if data:
            try:
                data = data[peer.send(data) :]
            except BlockingIOError:
                pass
        return bool(conn.commands)

    room.until(fed)
    assert conn.commands[0].body == body


def test_a_slow_reader_is_not_read_and_gets_everything_in_the_end(room: Room) -> None:
    conn, peer, _ = room.echo(100_000, high_water=200_000)
    data, sent = b"".join(frame(number) for number in range(REQUESTS)), 0
    peer.setblocking(False)

    def full() -> bool:
        nonlocal sent
        try:
            sent += peer.send(data[sent : sent + 4096])
        except BlockingIOError:
            pass
        return conn.congested and len(conn.commands) > 1

    room.until(full)
    taken = len(conn.commands)
    room.turns(50)
    assert len(conn.commands) == taken < 100, "nobody reads for who does not read"
    found = bytearray()

    def everything() -> bool:
        nonlocal sent
        try:
            sent += peer.send(data[sent : sent + 4096])
        except BlockingIOError:
            pass
        try:
            found.extend(peer.recv(1 << 20))
        except BlockingIOError:
            pass
        return len(found) > REQUESTS * 100_000

    room.until(everything, 30)
    assert len(conn.commands) == REQUESTS
    assert not conn.congested


def test_a_flood_on_one_connection_keeps_nobody_waiting(room: Room) -> None:
    flooding, flood, _ = room.echo(None)
    calm, peer, _ = room.echo()
    data = b"".join(frame(number) for number in range(5000))
    flood.setblocking(False)
    at, ticks = 0, 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        room.loop.call_soon(tick)

    def pour() -> bool:
        nonlocal at
        try:
            at = (at + flood.send(data[at : at + 65536])) % len(data)
        except BlockingIOError:
            pass
        return len(calm.commands) == 1

    room.loop.call_soon(tick)
    for _ in range(50):
        pour()
    peer.sendall(frame())
    before = len(flooding.commands)
    room.until(pour)
    assert len(flooding.commands) - before < 5000, "at most some passes of the flood"
    assert ticks > 0
    assert len(answers(peer, 1)) == 1


def test_a_fault_of_one_handler_ends_that_connection_only(room: Room) -> None:
    class Faulty(Echo):
        def received(self, command: RemotingCommand) -> None:
            raise RuntimeError("a bug")

    faulty = Faulty(room.loop)
    peer, wire = room.join(faulty)
    other, calm, _ = room.echo()
    peer.sendall(frame())
    calm.sendall(frame())
    room.until(lambda: faulty.losses)
    assert peer.recv(1) == b""
    assert wire.is_closing()
    assert len(answers(calm, 1)) == 1
    assert [str(fault["exception"]) for fault in room.faults] == ["a bug"]
    assert not other.losses


def test_a_fault_of_what_is_planned_stops_no_other(room: Room) -> None:
    seen: list[int] = []

    class Planning(Conn):
        def received(self, command: RemotingCommand) -> None:
            room.engine.call_soon(lambda: 1 / 0)
            room.engine.call_soon(lambda: seen.append(1))

    peer, _ = room.join(Planning(room.loop))
    peer.sendall(frame())
    room.until(lambda: seen)
    assert isinstance(room.faults[0]["exception"], ZeroDivisionError)


def test_bytes_that_are_no_frame_close_the_connection(room: Room) -> None:
    conn, peer, _ = room.echo()
    peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    room.until(lambda: conn.losses)
    assert len(conn.faults) == 1
    assert peer.recv(1) == b""


def test_a_peer_that_goes_is_lost_once(room: Room) -> None:
    for go in (socket.socket.close, lambda peer: peer.shutdown(socket.SHUT_WR)):
        conn, peer, wire = room.echo()
        peer.sendall(frame()[:10])
        room.turns()
        go(peer)
        room.until(lambda: conn.losses)  # noqa: B023
        wire.abort()
        wire.close()
        wire.write(b"nobody hears it")
        room.turns()
        assert conn.losses == 1
        assert conn.closed


def test_a_close_lets_the_backlog_leave_first(room: Room) -> None:
    conn, peer, wire = room.echo()
    peer.setblocking(True)
    whole = bytes(5_000_000)
    wire.write(whole)
    conn.close()
    assert wire.is_closing()
    assert not conn.losses
    found = bytearray()
    peer.setblocking(False)

    def ended() -> bool:
        try:
            while piece := peer.recv(1 << 20):
                found.extend(piece)
        except BlockingIOError:
            return False
        return True

    room.until(ended)
    assert found == whole
    room.until(lambda: conn.losses == 1)


def test_an_abort_in_a_pass_leaves_the_pass_whole(room: Room) -> None:
    """Each connection cuts all the others off when it is served: events of the cut ones are passed over."""
    cut: list[Echo] = []

    class Cutting(Echo):
        def received(self, command: RemotingCommand) -> None:
            super().received(command)
            for each in cut:
                if each is not self:
                    each.abort()

    for _ in range(8):
        cut.append(Cutting(room.loop))
        peer, _ = room.join(cut[-1])
        peer.sendall(frame())
    room.until(lambda: sum(conn.losses for conn in cut) >= 7)
    assert sum(len(conn.commands) for conn in cut) == 1


def test_a_reset_says_why(room: Room) -> None:
    reasons: list[Exception | None] = []

    class Told(Echo):
        def lost(self, reason: Exception | None) -> None:
            super().lost(reason)
            reasons.append(reason)

    conn = Told(room.loop)
    peer, wire = room.join_by_tcp(conn)
    assert wire.get_extra_info("peername") == peer.getsockname()
    assert wire.get_extra_info("sockname") == peer.getpeername()
    assert wire.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    room.until(lambda: conn.losses)
    [reason] = reasons
    assert isinstance(reason, OSError)
    assert reason.errno == errno.ECONNRESET


def test_who_stops_reading_sends_on(room: Room) -> None:
    conn, peer, _ = room.echo()
    conn.stop_reading()
    peer.sendall(frame())
    room.turns(20)
    assert conn.commands == []
    conn.send(frame(5))
    room.turns(5)
    assert [each.opaque for each in answers(peer, 1)] == [5]


def test_what_came_beside_the_end_is_answered_and_the_end_heard(room: Room) -> None:
    several = [Echo(room.loop, 0) for _ in range(3)]
    peers = [room.join_by_tcp(conn)[0] for conn in several]
    for peer in peers:
        peer.sendall(b"".join(frame(number) for number in range(3)))
        peer.shutdown(socket.SHUT_WR)
    room.until(lambda: all(conn.losses for conn in several))
    for peer in peers:
        assert [answer.opaque for answer in answers(peer, 3)] == [0, 1, 2]
        assert peer.recv(1) == b""


def test_more_than_one_read_takes_is_read_on_though_nothing_more_comes(room: Room) -> None:
    several = [room.echo(None) for _ in range(3)]
    whole = frame(1, bytes(300_000))
    for conn, peer, _ in several:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        peer.sendall(whole[:120_000])
        room.turns()
        peer.setblocking(False)
        assert peer.send(whole[120_000:] + frame(2)) == len(whole[120_000:] + frame(2))
        assert conn.commands == []
    room.until(lambda: all(len(conn.commands) == 2 for conn, _, _ in several))


def test_those_that_a_pass_has_no_time_for_go_on_later(room: Room) -> None:
    """Their bytes were read already."""
    seen: list[str] = []

    class Slow(Echo):
        def received(self, command: RemotingCommand) -> None:
            time.sleep(0.001)
            super().received(command)
            seen.append("frame")

    def tick() -> None:
        seen.append("tick")
        room.loop.call_soon(tick)

    several = [(conn := Slow(room.loop, 0), *room.join(conn)) for _ in range(30)]
    for number, (_, peer, _) in enumerate(several):
        peer.sendall(frame(number) + frame(100 + number)[:7])
    room.loop.call_soon(tick)
    room.until(lambda: seen.count("frame") == 30)
    together = max(len(run) for run in "".join("f" if each == "frame" else " " for each in seen).split())
    assert together <= 10, "the loop gets its turn between"
    for number, (_, peer, _) in enumerate(several):
        peer.sendall(frame(100 + number)[7:])
        assert [answer.opaque for answer in answers_later(room, several[number][0], peer)] == [
            number,
            100 + number,
        ]


def answers_later(room: Room, conn: Echo, peer: socket.socket) -> list[RemotingCommand]:
    room.until(lambda: len(conn.commands) == 2)
    room.turns()
    return answers(peer, 2)
