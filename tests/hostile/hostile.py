"""Hostile clients against a real broker: their cost in memory and in other clients' time.

`python -m tests.hostile.hostile [--seconds T] [--connections N] [--name ATTACK]... [--way WAY] [--tls]
[--users|--insider]`: every attack for T seconds with N connections, while two well-behaved clients work: one of
remoting and one of gRPC.

`--users`: they are the only ones that may log in; `--insider`: attackers may, too, as a user with all rights; `--tls`:
only TLS is accepted. One line per attack; exit code 1 if a bound was exceeded.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path

from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, create_user, grant, options
from tests.hostile.attacker import ATTACKS, FREE
from tests.hostile.background_client import BackgroundClient
from tests.hostile.grpc_background_client import GrpcBackgroundClient
from tests.hostile.memory import Watched, worked_s
from tests.support.broker_process import WAY, WAYS, BrokerProcess, shared_certificates
from tests.support.certificates import settings
from tests.support.client_socket import ClientSocket

WORK_S, WORK_S_EACH = 1.0, 0.0005
"""How long the broker may work for others before it answers the background client: once for each connection."""
GROWTH_KIB = 1400 << 10
"""Memory that an attack may make the broker use: maxConnectionBytes, and what comes on top of it."""
PATIENCE_S = 60.0


INSIDER = ("insider", "insider-word")


class Who(Enum):
    """Who may log in: everybody without a login, the background client alone, or attackers, too."""

    ANYONE = auto()
    USERS = auto()
    INSIDER = auto()


@dataclass(frozen=True)
class Seen:
    """Result of one attack. KiB of anonymous memory: before, the peak, and after the attackers disconnected."""

    name: str
    joined: int
    closed: int
    refused: int
    seconds: float
    before_kib: int
    peak_kib: int
    after_kib: int
    worst_s: float
    work_s: float
    usual_s: float
    served: int
    grpc_work_s: float
    grpc_usual_s: float
    grpc_served: int

    @property
    def faults(self) -> list[str]:
        found = []
        if self.peak_kib - self.before_kib > GROWTH_KIB:
            found.append(f"memory grew by {(self.peak_kib - self.before_kib) >> 10} MiB")
        if self.work_s > WORK_S + WORK_S_EACH * (self.joined + self.closed):
            found.append(f"the background client waited while the broker worked for {self.work_s:.2f} s")
        if not self.served:
            found.append("the background client was not served")
        if self.grpc_work_s > WORK_S + WORK_S_EACH * (self.joined + self.closed):
            found.append(f"that of gRPC waited while the broker worked for {self.grpc_work_s:.2f} s")
        if not self.grpc_served:
            found.append("that of gRPC was not served")
        return found

    def __str__(self) -> str:
        return (
            f"{self.name:16} {self.seconds:5.1f} s  connections {self.joined:5} ({self.closed} closed, {self.refused} "
            f"refused)  memory {self.before_kib >> 10} → {self.peak_kib >> 10} → {self.after_kib >> 10} MiB  "
            f"client {self.served} rounds, 99 % in {1000 * self.usual_s:.1f} ms, worst {1000 * self.worst_s:.0f} ms "
            f"(the broker worked {1000 * self.work_s:.0f} ms of it)  gRPC {self.grpc_served} calls, "
            f"99 % in {1000 * self.grpc_usual_s:.1f} ms"
            + "".join(f"  BROKEN: {fault}" for fault in self.faults)
        )


class Siege:
    """A broker, its background clients and an attacker; `attack` runs one attack and closes its connections."""

    def __init__(
        self, broker: BrokerProcess, connections: int, seconds: float, who: "Who", *, tls: bool
    ) -> None:
        assert broker.name_server is not None
        self.broker = broker
        self._watched = Watched(broker.process.pid)
        pid = broker.process.pid
        context = shared_certificates().client() if tls else None
        if who is Who.ANYONE:
            connect = partial(ClientSocket, tls=context, keys=broker.keys)
        else:
            connect = partial(SignedSocket, tls=context)
        self._client = BackgroundClient(broker.address, lambda: worked_s(pid), open_connection=connect)
        more = ["--authority", shared_certificates().path("authority.pem")] if tls else []
        more += ["--keys", *INSIDER] if who is Who.INSIDER else []
        broker_at, names_at = (f"{host}:{port}" for host, port in (broker.address, broker.name_server))
        self._grpc_client = GrpcBackgroundClient(
            broker.address,
            lambda: worked_s(pid),
            connect,
            None if who is Who.ANYONE else (ROOT, ROOT_PASSWORD),
            Path(shared_certificates().path("authority.pem")).read_bytes() if tls else None,
        )
        self._attacker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.hostile.attacker",
                broker_at,
                names_at,
                str(connections),
                str(seconds),
                *more,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def attack(self, name: str) -> Seen:
        begun, mark, before = time.monotonic(), self._client.mark(), self._watched.now
        grpc_mark = self._grpc_client.mark()
        self._watched.take_peak()
        joined, closed, refused = self._command(name)
        peak, seconds = self._watched.take_peak(), time.monotonic() - begun
        self._command(FREE)
        self._client.wait_for_rounds(3)
        self._grpc_client.wait_for_call()
        return Seen(
            name,
            joined,
            closed,
            refused,
            seconds,
            before,
            peak,
            self._watched.now,
            self._client.worst_s(mark),
            self._client.worst_work_s(mark),
            self._client.usual_s(mark),
            self._client.mark() - mark,
            self._grpc_client.worst_work_s(grpc_mark),
            self._grpc_client.usual_s(grpc_mark),
            self._grpc_client.mark() - grpc_mark,
        )

    def _command(self, name: str) -> tuple[int, int, int]:
        assert self._attacker.stdin is not None
        assert self._attacker.stdout is not None
        self._attacker.stdin.write(f"{name}\n")
        self._attacker.stdin.flush()
        line = self._attacker.stdout.readline().split()
        if not line:
            raise RuntimeError(f"the attacker died at {name}")
        joined, closed, refused = map(int, line[1:])
        return joined, closed, refused

    def __enter__(self) -> "Siege":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._attacker.stdin is not None
        assert self._attacker.stdout is not None
        self._attacker.stdin.close()
        self._attacker.stdout.close()
        self._attacker.wait(PATIENCE_S)
        self._watched.stop()
        self._grpc_client.stop()
        self._client.stop()


def besiege(
    names: list[str],
    connections: int,
    seconds: float,
    way: tuple[str, ...] = WAY,
    *,
    who: Who = Who.ANYONE,
    tls: bool = False,
) -> Iterator[Seen]:
    """One broker for all attacks, one after another; at the end it stops cleanly and nothing is missing. `tls`: it
    accepts nothing else, and attackers speak it, but for attacks on the handshake."""
    arguments = () if who is Who.ANYONE else options()
    if tls:
        arguments += (*shared_certificates().arguments, *settings(server_mode="enforcing"))
    with tempfile.TemporaryDirectory() as folder:
        with BrokerProcess(Path(folder) / "store", *arguments, way=way) as broker:
            if who is Who.INSIDER:
                with SignedSocket(
                    broker.address, tls=shared_certificates().client() if tls else None
                ) as root:
                    create_user(root, *INSIDER)
                    for resource in ("Topic:*", "Group:*", "Cluster:*"):
                        grant(root, INSIDER[0], resource, "All")
            with Siege(broker, connections, seconds, who, tls=tls or broker.tls is not None) as siege:
                for name in names:
                    yield siege.attack(name)
            code, log = broker.stop(PATIENCE_S), broker.log.read_text()
        if code != 0 or "Traceback" in log:
            raise AssertionError(f"exit code {code}, the log ends with: {log[-4000:]}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.hostile.hostile")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--name", action="append", choices=sorted(ATTACKS))
    parser.add_argument("--way", choices=sorted(WAYS), default="engine")
    parser.add_argument("--tls", action="store_true")
    logins = parser.add_mutually_exclusive_group()
    logins.add_argument("--users", dest="who", action="store_const", const=Who.USERS)
    logins.add_argument("--insider", dest="who", action="store_const", const=Who.INSIDER)
    given = parser.parse_args(arguments)
    broken = 0
    names, way = given.name or list(ATTACKS), WAYS[given.way]
    who = given.who or Who.ANYONE
    for seen in besiege(names, given.connections, given.seconds, way, who=who, tls=given.tls):
        print(seen, flush=True)
        broken += bool(seen.faults)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
