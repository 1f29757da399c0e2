"""Keep-alive of TCP connections: a peer that has disconnected without a word is noticed by the kernel.

For client sockets, and for listeners, whose accepted sockets inherit it.
"""

import socket

OPTIONS = {
    "TCP_KEEPIDLE": 30,  # seconds
    "TCP_KEEPALIVE": 30,  # the same on macOS
    "TCP_KEEPINTVL": 10,  # seconds
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,  # ms
}
"""Those that the system has: macOS and Windows notice only a peer that was silent."""


def keep_alive(sock: socket.socket) -> None:
    """Close the connection after 30 s of unacknowledged data, or 60 s after the last bytes of the peer. OSError."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in OPTIONS.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
