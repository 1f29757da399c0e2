"""AttackSockets: many non-blocking sockets of one attacker. Each sends what it can; bytes are read only on request.

One thread. A socket that the broker closed counts as gone and is passed over.
"""

import contextlib
import errno
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator

Address = tuple[str, int]
CONNECT_S = 10.0
AT_ONCE = 256
WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
RESET = struct.pack("ii", 1, 0)


class AttackSockets:
    """`tls`: they complete a handshake when they join, and what they send is encrypted."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.members: list[socket.socket] = []
        self.gone = 0
        self.refused = 0

    def join(self, address: Address, count: int, *, receive_bytes: int | None = None) -> None:
        """`count` more connections, some hundred at a time; those that cannot be made within 10 s count as refused."""
        for first in range(0, count, AT_ONCE):
            fresh = [connecting(address, receive_bytes) for _ in range(min(AT_ONCE, count - first))]
            waiting = dict.fromkeys(fresh)
            deadline = time.monotonic() + CONNECT_S
            while waiting and time.monotonic() < deadline:
                ready = select.poll()
                for each in waiting:
                    ready.register(each, select.POLLOUT)
                by_number = {each.fileno(): each for each in waiting}
                for number, _ in ready.poll(100):
                    del waiting[by_number[number]]
            for each in fresh:
                if each in waiting or each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self.refused += 1
                    each.close()
                elif self._tls is None:
                    self.members.append(each)
                else:
                    self._shake_hands(self._tls, each)

    def _shake_hands(self, tls: ssl.SSLContext, each: socket.socket) -> None:
        each.settimeout(CONNECT_S)
        try:
            member = tls.wrap_socket(each, server_hostname="localhost")
        except OSError:
            self.refused += 1
            each.close()
            return
        member.setblocking(False)
        self.members.append(member)

    def send(self, data: bytes, within_s: float = 10.0) -> int:
        """Each sends as much of `data` as the broker accepts in time; returns how many bytes were sent by all."""
        left = {each.fileno(): (each, memoryview(data)) for each in self.members}
        deadline = time.monotonic() + within_s
        taken = 0
        while left and time.monotonic() < deadline:
            ready = select.poll()
            for number in left:
                ready.register(number, select.POLLOUT)
            for number, _ in ready.poll(200):
                each, rest = left[number]
                count = self._put(each, rest[: 1 << 18])
                if count is None or count == len(rest):
                    del left[number]
                    taken += count or 0
                else:
                    left[number] = (each, rest[count:])
                    taken += count
        return taken

    def send_one(self, each: socket.socket, data: bytes, until: float) -> int:
        """One of them sends `data` and discards what it receives meanwhile; returns how many bytes were sent."""
        rest = memoryview(data)
        while rest and time.monotonic() < until and each.fileno() >= 0:
            ready = select.poll()
            ready.register(each, select.POLLIN | select.POLLOUT)
            for _, events in ready.poll(200):
                if events & ~select.POLLOUT and not self._discard(each):
                    return len(data) - len(rest)
                if events & select.POLLOUT:
                    rest = rest[self._put(each, rest[: 1 << 18]) or 0 :]
        return len(data) - len(rest)

    def _discard(self, each: socket.socket) -> bool:
        """False if the broker closed it."""
        try:
            if each.recv(1 << 18):
                return True
        except (BlockingIOError, *WANTS):
            return True
        except OSError:
            pass
        self.drop(each)
        return False

    def _put(self, each: socket.socket, data: memoryview) -> int | None:
        try:
            return each.send(data)
        except (BlockingIOError, *WANTS):
            return 0
        except OSError:
            self.drop(each)
            return None

    def drop(self, each: socket.socket) -> None:
        if each in self.members:
            self.members.remove(each)
            self.gone += 1
        each.close()

    def shut_down(self, each: socket.socket) -> None:
        """It sends no more, but can still receive."""
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool = False) -> None:
        for each in self.members:
            if reset:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            each.close()
        self.members = []

    def __iter__(self) -> Iterator[socket.socket]:
        return iter(list(self.members))


def connecting(address: Address, receive_bytes: int | None = None) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    if receive_bytes is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    fault = opened.connect_ex(address)
    if fault not in (0, errno.EINPROGRESS):
        opened.close()
        raise OSError(fault, f"cannot connect to {address[0]}:{address[1]}")
    return opened
