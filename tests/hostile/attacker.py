"""The attacker's process: reads the name of an attack per line, runs it, and keeps its sockets open until the next.

`python -m tests.hostile.attacker HOST:PORT HOST:PORT CONNECTIONS SECONDS [--authority FILE] [--keys USER PASSWORD]`:
broker, name server, limits; whose servers it trusts, if it speaks TLS; and as whom it signs.
"""

import argparse
import resource
import ssl
import sys
import traceback

from tests.hostile.attack_sockets import Address, AttackSockets
from tests.hostile.attacks import SOCKETS, Field, sign_as
from tests.hostile.exhaustion_attacks import EXHAUSTION
from tests.hostile.http2_attacks import HTTP2

ATTACKS = SOCKETS | EXHAUSTION | HTTP2
FREE = "free"


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.attacker")
    parser.add_argument("broker", type=address_of)
    parser.add_argument("name_server", type=address_of)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--authority")
    parser.add_argument("--keys", nargs=2)
    given = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    tls = None if given.authority is None else ssl.create_default_context(cafile=given.authority)
    if given.keys is not None:
        sign_as(*given.keys)
    field = Field(given.broker, given.name_server, given.connections, given.seconds, tls)
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
