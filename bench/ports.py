"""Free ports for servers whose port must be configured before they listen."""

import contextlib
import random
import socket
from collections import deque

BLOCKS = range(20_000, 32_000, 8)
"""Below Linux's ephemeral ports, so that a new connection cannot take one of them."""
BESIDE = range(-2, 3)
"""Distances of the ports that servers derive: the VIP port two below, replication one above, a name server after it."""
TRIES = 1000
HELD = 128

_random = random.SystemRandom()
"""Not the generator that tests seed: two test processes would search in the same order."""
_held: deque[socket.socket] = deque()
"""Names of blocks in the kernel: a server binds seconds after the search, and other processes search meanwhile."""


def free_port() -> int:
    """A port that is free with its neighbours (`BESIDE`), and that no process gets again while this one may use it.

    The process holds its last `HELD` blocks. RuntimeError: no port is free.
    """
    for _ in range(TRIES):
        port = _random.choice(BLOCKS) - BESIDE.start
        with contextlib.ExitStack() as found, contextlib.suppress(OSError):
            name = found.enter_context(socket.socket(socket.AF_UNIX))
            name.bind(f"\0firearrow-port-{port}")
            with contextlib.ExitStack() as bound:
                for distance in BESIDE:
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", port + distance))
            found.pop_all()
            _held.append(name)
            if len(_held) > HELD:
                _held.popleft().close()
            return port
    raise RuntimeError("there is no free port below the ephemeral ports")
