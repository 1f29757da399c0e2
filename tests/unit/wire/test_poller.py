"""EpollPoller: many sockets in one pass, one write each; floods, slow readers and cut frames affect no other peer."""

import socket
import time

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from tests.support.connections import Echo
from tests.support.poller_harness import PollerHarness, answers, frame

REQUESTS = 400
BODY = bytes(range(256))


def test_requests_of_one_pass_are_answered_by_one_write_each(harness: PollerHarness) -> None:
    several = [harness.echo() for _ in range(10)]
    for _, peer, _ in several:
        peer.sendall(b"".join(frame(number) for number in range(20)))
    harness.until(lambda: all(len(connection.commands) == 20 for connection, _, _ in several))
    for _, peer, _ in several:
        assert [answer.opaque for answer in answers(peer, 20)] == list(range(20))


def test_callbacks_scheduled_in_a_pass_run_after_its_last_socket(harness: PollerHarness) -> None:
    seen: list[str] = []

    class Planning(Connection):
        def received(self, command: RemotingCommand) -> None:
            assert harness.engine.in_pass
            seen.append("frame")
            harness.engine.call_soon(lambda: seen.append("planned"))

    for _ in range(4):  # that many are served before a pass reads the clock
        peer, _ = harness.join(Planning(harness.loop))
        peer.sendall(frame())
    harness.until(lambda: len(seen) == 8)
    assert seen == ["frame"] * 4 + ["planned"] * 4
    harness.engine.call_soon(lambda: seen.append("later"))
    harness.until(lambda: seen[-1] == "later")


def test_callbacks_they_schedule_run_next_and_later_ones_in_the_next_iteration(
    harness: PollerHarness,
) -> None:
    seen: list[str] = []

    def first() -> None:
        harness.loop.call_soon(seen.append, "loop")
        harness.engine.call_soon(second)
        seen.append("first")

    def second() -> None:
        harness.engine.call_soon(lambda: seen.append("third"))
        seen.append("second")

    class Planning(Connection):
        def received(self, command: RemotingCommand) -> None:
            harness.engine.call_soon(first)

    peer, _ = harness.join(Planning(harness.loop))
    peer.sendall(frame())
    harness.until(lambda: len(seen) == 4)
    assert seen == ["first", "second", "loop", "third"]


@pytest.mark.parametrize("cut", [1, 3, 7, 50])
def test_frames_come_out_whole_at_any_cut(harness: PollerHarness, cut: int) -> None:
    connection, peer, _ = harness.echo(None)
    data = b"".join(frame(number, BODY) for number in range(3))
    for at in range(0, len(data), cut):
        peer.sendall(data[at : at + cut])
        harness.iterate(3)
    harness.until(lambda: len(connection.commands) == 3)
    assert [command.body for command in connection.commands] == [BODY] * 3


def test_a_frame_larger_than_the_window_is_received_whole(harness: PollerHarness) -> None:
    connection, peer, _ = harness.echo(None)
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
        return bool(connection.commands)

    harness.until(fed)
    assert connection.commands[0].body == body


def test_a_slow_reader_is_not_read_and_gets_everything_in_the_end(harness: PollerHarness) -> None:
    connection, peer, _ = harness.echo(100_000, high_water=200_000)
    data, sent = b"".join(frame(number) for number in range(REQUESTS)), 0
    peer.setblocking(False)

    def full() -> bool:
        nonlocal sent
        try:
            sent += peer.send(data[sent : sent + 4096])
        except BlockingIOError:
            pass
        return connection.write_paused and len(connection.commands) > 1

    harness.until(full)
    taken = len(connection.commands)
    harness.iterate(50)
    assert len(connection.commands) == taken < 100, "a peer that does not read is not read"
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

    harness.until(everything, 30)
    assert len(connection.commands) == REQUESTS
    assert not connection.write_paused


def test_a_flood_on_one_connection_delays_no_other(harness: PollerHarness) -> None:
    flooding, flood, _ = harness.echo(None)
    calm, peer, _ = harness.echo()
    data = b"".join(frame(number) for number in range(5000))
    flood.setblocking(False)
    at, ticks = 0, 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        harness.loop.call_soon(tick)

    def pour() -> bool:
        nonlocal at
        try:
            at = (at + flood.send(data[at : at + 65536])) % len(data)
        except BlockingIOError:
            pass
        return len(calm.commands) == 1

    harness.loop.call_soon(tick)
    for _ in range(50):
        pour()
    peer.sendall(frame())
    before = len(flooding.commands)
    harness.until(pour)
    assert len(flooding.commands) - before < 5000, "at most some passes of the flood"
    assert ticks > 0
    assert len(answers(peer, 1)) == 1


def test_a_failing_callback_stops_no_other(harness: PollerHarness) -> None:
    seen: list[int] = []

    class Planning(Connection):
        def received(self, command: RemotingCommand) -> None:
            harness.engine.call_soon(lambda: 1 / 0)
            harness.engine.call_soon(lambda: seen.append(1))

    peer, _ = harness.join(Planning(harness.loop))
    peer.sendall(frame())
    harness.until(lambda: seen)
    assert isinstance(harness.faults[0]["exception"], ZeroDivisionError)


def test_a_connection_that_stops_reading_still_sends(harness: PollerHarness) -> None:
    connection, peer, _ = harness.echo()
    connection.stop_reading()
    peer.sendall(frame())
    harness.iterate(20)
    assert connection.commands == []
    connection.send(frame(5))
    harness.iterate(5)
    assert [each.opaque for each in answers(peer, 1)] == [5]


def test_more_than_one_read_returns_is_read_without_new_events(harness: PollerHarness) -> None:
    several = [harness.echo(None) for _ in range(3)]
    whole = frame(1, bytes(300_000))
    for connection, peer, _ in several:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        peer.sendall(whole[:120_000])
        harness.iterate()
        peer.setblocking(False)
        assert peer.send(whole[120_000:] + frame(2)) == len(whole[120_000:] + frame(2))
        assert connection.commands == []
    harness.until(lambda: all(len(connection.commands) == 2 for connection, _, _ in several))


def test_sockets_left_over_from_a_pass_are_served_later(harness: PollerHarness) -> None:
    """Their bytes were read already. The handler sleeps to simulate work: a pass has 2 ms."""
    seen: list[str] = []

    class Slow(Echo):
        def received(self, command: RemotingCommand) -> None:
            time.sleep(0.001)
            super().received(command)
            seen.append("frame")

    def tick() -> None:
        seen.append("tick")
        harness.loop.call_soon(tick)

    several = [(connection := Slow(harness.loop, 0), *harness.join(connection)) for _ in range(30)]
    for number, (_, peer, _) in enumerate(several):
        peer.sendall(frame(number) + frame(100 + number)[:7])
    harness.loop.call_soon(tick)
    harness.until(lambda: seen.count("frame") == 30)
    together = max(len(run) for run in "".join("f" if each == "frame" else " " for each in seen).split())
    assert together <= 10, "the loop runs other callbacks in between"
    for number, (_, peer, _) in enumerate(several):
        peer.sendall(frame(100 + number)[7:])
    harness.until(lambda: seen.count("frame") == 60)
    harness.iterate()
    for number, (_, peer, _) in enumerate(several):
        assert [answer.opaque for answer in answers(peer, 2)] == [number, 100 + number]
