"""systemd: readiness and stop are reported to it (sd_notify), and listening sockets are taken from it (sd_listen_fds).

Both protocols are environment variables, so no library is needed; without systemd nothing happens. Loop thread.
"""

import logging
import os
import socket
from collections.abc import MutableMapping

from firearrow._native.wire.keep_alive import keep_alive

log = logging.getLogger("firearrow.systemd")

FIRST_FD = 3
"""SD_LISTEN_FDS_START: the number of the first descriptor passed."""
READY, STOPPING = "READY=1", "STOPPING=1"


def notify(*lines: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Send the state, lines such as `READY=1`, to the service manager that NOTIFY_SOCKET names, if any.

    A path that begins with `@` is in Linux's abstract namespace. A failure is logged: the manager would wait for
    the state until its timeout.
    """
    path = environment.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1)
            sender.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        log.warning("cannot report %s to NOTIFY_SOCKET %s: %s", lines[0], path, error.strerror or error)


class PassedSockets:
    """The listening TCP sockets that systemd passed to this process, by their address.

    A server that would listen at an address takes the socket that is bound to it, so the options stay the only place
    that states where to listen.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Takes the sockets and removes the variables, so that no child takes them again."""
        self._sockets: list[socket.socket] = []
        self._taken: list[socket.socket] = []
        process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
        environment.pop("LISTEN_FDNAMES", None)
        if process == str(os.getpid()) and count.isascii() and count.isdigit():
            for number in range(FIRST_FD, FIRST_FD + int(count)):
                self._add(number)

    def take(self, family: int, host: str, port: int) -> socket.socket | None:
        """A copy of the socket bound to this address, ready for accept; the caller owns it. None: there is none. It
        can be taken again, as when the broker starts again in another role."""
        for passed in (*self._sockets, *self._taken):
            if passed.family == family and passed.getsockname()[:2] == (host, port):
                if passed in self._sockets:
                    self._sockets.remove(passed)
                    self._taken.append(passed)
                return passed.dup()
        return None

    def close(self) -> None:
        """Close those that nothing has taken, with a warning: their clients would wait for ever."""
        for passed in self._sockets:
            log.warning(
                "nothing here listens at %s:%d, which systemd passed: make ListenStream in the socket unit and the "
                "options of the broker agree",
                *passed.getsockname()[:2],
            )
            passed.close()
        self._sockets.clear()

    def _add(self, number: int) -> None:
        try:
            passed = socket.socket(fileno=number)
        except OSError as error:
            return _warn_of(number, f"is not a socket: {error.strerror}")
        listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if passed.family not in (socket.AF_INET, socket.AF_INET6) or not listening:
            passed.close()
            return _warn_of(number, "is not a listening TCP socket")
        passed.set_inheritable(False)
        passed.setblocking(False)
        keep_alive(passed)
        self._sockets.append(passed)


def _warn_of(number: int, what: str) -> None:
    log.warning("descriptor %d of LISTEN_FDS %s", number, what)
