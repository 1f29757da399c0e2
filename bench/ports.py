"""Free ports for servers whose port must be configured before they listen."""

import contextlib
import random
import socket

OWN_PORTS = 20_000, 32_000
"""Below Linux's ephemeral ports, so that a new connection cannot take one of them."""
TRIES = 1000

_random = random.SystemRandom()
"""Not the generator that tests seed: two test processes would search in the same order."""


def free_port(*beside: int) -> int:
    """A free port whose neighbours at these distances are free, too. RuntimeError: there is none."""
    for _ in range(TRIES):
        port = _random.randint(*OWN_PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for distance in (0, *beside):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port + distance))
            return port
    raise RuntimeError("there is no free port below the ephemeral ports")
