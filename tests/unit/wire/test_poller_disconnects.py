"""EpollPoller: how connections end, by the peer, by us, by an error; no other connection is affected."""

import errno
import socket
import struct

from firearrow._native.wire.command import RemotingCommand
from tests.support.connections import Echo
from tests.support.poller_harness import PollerHarness, answers, frame


def test_a_fault_of_one_handler_ends_that_connection_only(harness: PollerHarness) -> None:
    class Faulty(Echo):
        def received(self, command: RemotingCommand) -> None:
            raise RuntimeError("a bug")

    faulty = Faulty(harness.loop)
    peer, transport = harness.join(faulty)
    other, calm, _ = harness.echo()
    peer.sendall(frame())
    calm.sendall(frame())
    harness.until(lambda: faulty.losses)
    assert peer.recv(1) == b""
    assert transport.is_closing()
    assert len(answers(calm, 1)) == 1
    assert [str(fault["exception"]) for fault in harness.faults] == ["a bug"]
    assert not other.losses


def test_malformed_frames_close_the_connection(harness: PollerHarness) -> None:
    connection, peer, _ = harness.echo()
    peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    harness.until(lambda: connection.losses)
    assert len(connection.faults) == 1
    assert peer.recv(1) == b""


def test_a_lost_peer_is_reported_once(harness: PollerHarness) -> None:
    for go in (socket.socket.close, lambda peer: peer.shutdown(socket.SHUT_WR)):
        connection, peer, transport = harness.echo()
        peer.sendall(frame()[:10])
        harness.iterate()
        go(peer)
        harness.until(lambda: connection.losses)  # noqa: B023
        transport.abort()
        transport.close()
        transport.write(b"not received")
        harness.iterate()
        assert connection.losses == 1
        assert connection.closed


def test_a_close_sends_the_backlog_first(harness: PollerHarness) -> None:
    connection, peer, transport = harness.echo()
    peer.setblocking(True)
    whole = bytes(5_000_000)
    transport.write(whole)
    connection.close()
    assert transport.is_closing()
    assert not connection.losses
    found = bytearray()
    peer.setblocking(False)

    def ended() -> bool:
        try:
            while chunk := peer.recv(1 << 20):
                found.extend(chunk)
        except BlockingIOError:
            return False
        return True

    harness.until(ended)
    assert found == whole
    harness.until(lambda: connection.losses == 1)


def test_an_abort_in_a_pass_does_not_break_the_pass(harness: PollerHarness) -> None:
    """Each connection aborts all others when it is served: events of aborted ones are skipped."""
    cut: list[Echo] = []

    class Cutting(Echo):
        def received(self, command: RemotingCommand) -> None:
            super().received(command)
            for each in cut:
                if each is not self:
                    each.abort()

    for _ in range(8):
        cut.append(Cutting(harness.loop))
        peer, _ = harness.join(cut[-1])
        peer.sendall(frame())
    harness.until(lambda: sum(connection.losses for connection in cut) >= 7)
    assert sum(len(connection.commands) for connection in cut) == 1


def test_a_reset_has_a_reason(harness: PollerHarness) -> None:
    reasons: list[Exception | None] = []

    class Recording(Echo):
        def lost(self, reason: Exception | None) -> None:
            super().lost(reason)
            reasons.append(reason)

    connection = Recording(harness.loop)
    peer, transport = harness.join_by_tcp(connection)
    assert transport.get_extra_info("peername") == peer.getsockname()
    assert transport.get_extra_info("sockname") == peer.getpeername()
    assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    harness.until(lambda: connection.losses)
    [reason] = reasons
    assert isinstance(reason, OSError)
    assert reason.errno == errno.ECONNRESET


def test_data_that_arrives_with_the_end_is_answered_and_the_end_is_reported(harness: PollerHarness) -> None:
    several = [Echo(harness.loop, 0) for _ in range(3)]
    peers = [harness.join_by_tcp(connection)[0] for connection in several]
    for peer in peers:
        peer.sendall(b"".join(frame(number) for number in range(3)))
        peer.shutdown(socket.SHUT_WR)
    harness.until(lambda: all(connection.losses for connection in several))
    for peer in peers:
        assert [answer.opaque for answer in answers(peer, 3)] == [0, 1, 2]
        assert peer.recv(1) == b""
