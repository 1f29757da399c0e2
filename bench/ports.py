"""Ports for servers that have to be told theirs before they listen."""

import contextlib
import random
import socket

OWN_PORTS = 20_000, 32_000
"""Below those that Linux gives to connections: one that begins meanwhile takes none of them."""
TRIES = 1000

_random = random.SystemRandom()
"""Not the one that tests seed: two of them at once would seek in the same order."""


def free_port(*beside: int) -> int:
    """One that nobody has; nor has anybody those so far beside it. RuntimeError: all are taken."""
    for _ in range(TRIES):
        port = _random.randint(*OWN_PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for distance in (0, *beside):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port + distance))
            return port
    raise RuntimeError("no free port below those of connections")
