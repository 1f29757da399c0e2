"""Listener: accepts connections at all addresses of a host. Loop thread."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from firearrow._native.wire.keep_alive import keep_alive
from firearrow.broker.base.systemd import PassedSockets

log = logging.getLogger("firearrow.server")

BACKLOG = 1024
ACCEPTS_PER_PASS = 2
"""Connections accepted in one pass of the loop, so that many new ones do not delay those that exist; the
others wait in the kernel."""
PAUSE_S = 1.0
"""How long no connection is accepted after the process ran out of descriptors or memory."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """`accepted(socket)` gets each connection and owns its socket. It is called once `start_serving` was; until then
    connections wait in the kernel."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: list[socket.socket],
        accepted: Callable[[socket.socket], object],
    ) -> None:
        self.sockets = listening
        self._loop = loop
        self._accepted = accepted
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}

    @classmethod
    async def bind(
        cls,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        accepted: Callable[[socket.socket], object],
        passed: PassedSockets | None = None,
    ) -> "Listener":
        """Listen at every address of the host, with the `passed` socket if one is bound to it. OSError."""
        try:
            found = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except UnicodeError:  # of a name such as ..
            raise OSError(errno.EADDRNOTAVAIL, f"{host!r} is not a machine's name") from None
        listening: list[socket.socket] = []
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                bound_port = listening[0].getsockname()[1] if listening else port
                ready = passed.take(family, str(address[0]), bound_port) if passed is not None else None
                listening.append(ready or _listening(family, (address[0], bound_port, *address[2:])))
        except BaseException:
            for each in listening:
                each.close()
            raise
        return cls(loop, listening, accepted)

    def start_serving(self) -> None:
        """A second call changes nothing."""
        for each in self.sockets:
            if each not in self._paused:
                self._watch(each)

    def close(self) -> None:
        for timer in self._paused.values():
            timer.cancel()
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        self.sockets = []

    def _watch(self, listening: socket.socket) -> None:
        self._paused.pop(listening, None)
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_PASS):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                log.error("no connections are accepted for %g s: %s", PAUSE_S, error.strerror)
                self._loop.remove_reader(listening)
                self._paused[listening] = self._loop.call_later(PAUSE_S, self._watch, listening)
                return
            try:
                self._accepted(connection)
            except OSError as error:  # the peer has closed it already
                log.debug("a connection was closed before it was served: %s", error)
                connection.close()


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keep_alive(opened)  # accepted sockets inherit it
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setblocking(False)
        opened.bind(address)
        opened.listen(BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened
