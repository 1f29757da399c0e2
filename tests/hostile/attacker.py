"""The attacker's process: reads the name of an attack per line, runs it, and keeps its sockets open until the next.

`python -m tests.hostile.attacker HOST:PORT HOST:PORT CONNECTIONS SECONDS`: broker, name server, limits.
"""

import resource
import sys
import traceback

from tests.hostile.attack_sockets import Address, AttackSockets
from tests.hostile.attacks import SOCKETS, Field
from tests.hostile.exhaustion_attacks import EXHAUSTION

ATTACKS = SOCKETS | EXHAUSTION
FREE = "free"


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: list[str]) -> int:
    broker, name_server, connections, seconds = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    field = Field(address_of(broker), address_of(name_server), int(connections), float(seconds))
    sockets = AttackSockets()
    for line in sys.stdin:
        sockets.close()
        name = line.strip()
        if name != FREE:
            try:
                sockets = ATTACKS[name](field)
            except Exception:
                traceback.print_exc()
                return 1
        print(name, len(sockets.members), sockets.gone, sockets.refused, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
