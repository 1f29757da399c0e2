"""Keep-alive of TCP connections: a peer that is gone without a word is noticed by the kernel.

For client sockets, and for listeners, whose accepted sockets inherit it.
"""

import socket

IDLE_S, PROBE_EACH_S, PROBES = 30, 10, 3
UNACKNOWLEDGED_MS = 30_000


def keep_alive(sock: socket.socket) -> None:
    """Close the connection after 30 s of unacknowledged data, or 60 s after the peer was last heard. OSError."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EACH_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
