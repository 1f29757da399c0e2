"""RootFolder: a Debian in a folder, and a broker in it, with its own processes, mounts and network.

Needs root. `in_own_network` comes first: brokers listen on their usual ports, which may be taken outside.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, until_received
from tests.support.round_trip import send_and_receive

NAME_SERVER, BROKER = "127.0.0.1:9876", ("127.0.0.1", 10911)
READY_S, STOP_S = 60, 30
OWN_NETWORK = "FIREARROW_OWN_NETWORK"
MOUNTS = """
set -e
root=$1 volume=$2 owner=$3
shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$volume" "$root/var/lib/firearrow"
for device in null urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,bind,ro "$root"
exec chroot --userspec="$owner" "$root" "$@"
"""
"""As a container engine with a read-only root: only the volume can be written."""


def is_outside() -> bool:
    """Whether `in_own_network` is still to be called."""
    return OWN_NETWORK not in os.environ


def in_own_network(module: str) -> None:
    """Run this program again in a network namespace that has only loopback, unless it is in one."""
    if os.geteuid() != 0:
        raise SystemExit(f"{module} needs root: run it with sudo")
    if is_outside():
        os.environ[OWN_NETWORK] = "1"
        again = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again])


@contextlib.contextmanager
def broker(root: Path, volume: Path, owner: str, command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """The command in `root` as process 1 of the user `owner` (`UID:GID`), once it is ready.

    `volume` is mounted at `/var/lib/firearrow`.
    """
    namespaces = ["unshare", "--pid", "--mount", "--fork", "--kill-child"]
    shell = ["sh", "-c", MOUNTS, "sh", str(root), str(volume), owner]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    process = subprocess.Popen(
        [*namespaces, *shell, *command], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], READY_S)[0], f"not ready within {READY_S} s"
        line = process.stdout.readline()
        assert line.startswith("firearrow ready: "), line
        print("   ", line.rstrip())
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def child(process: "subprocess.Popen[str]") -> int:
    """The broker itself: the only child of `unshare`."""
    [found] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found)


def stop(process: "subprocess.Popen[str]") -> None:
    """SIGTERM ends the broker with exit code 0."""
    os.kill(child(process), signal.SIGTERM)
    code = process.wait(STOP_S)
    assert code == 0, f"exit code {code}"
    print("    stopped by SIGTERM, exit code 0")


def exchange(topic: str) -> None:
    """Send a message and receive it, through the usual ports."""
    body = b"from a package"
    _, message = asyncio.run(send_and_receive(NAME_SERVER, topic, body))
    assert message.body == body
    print("    a message was sent and received")


def exchange_by_grpc(topic: str) -> None:
    """As a client of gRPC does, which needs protobuf and libnghttp2 there."""
    with ClientSocket(BROKER) as connection:
        create_topic(connection, topic)
        create_group(connection, f"{topic}-g")
    with GrpcCaller((BROKER[0], 8081)) as caller:
        caller.produce(topic)
        assert caller.send(topic, b"by gRPC").status.message == "OK"
        caller.consume(f"{topic}-g", topic)
        [received] = until_received(caller, f"{topic}-g", topic, 1)
        assert received.body == b"by gRPC"
    print("    a message was sent and received by gRPC")


def run(*command: str | Path) -> str:
    """Run a command and return its output. SystemExit with its errors if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
