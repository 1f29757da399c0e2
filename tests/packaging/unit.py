"""The systemd units of `make deb` under a running systemd: `python -m tests.packaging.unit`.

Start with the unit's sandbox, a message, a kill, a restart with and without the socket unit, removal. Needs root,
mmdebstrap, systemd-nspawn and the package in dist/.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.deb import make_debian
from tests.packaging.image import newest
from tests.packaging.root_folder import run

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "build" / "unit-test" / "root"
BROKER = ("127.0.0.1", 10911)
STATE_S = 30
RESTART_S = 4
EXCHANGE = "from tests.packaging.root_folder import exchange; exchange('Unit')"
CONNECT = f"from tests.packaging.unit import refused; print(refused({RESTART_S}))"


def main() -> None:
    if os.geteuid() != 0:
        raise SystemExit("tests.packaging.unit needs root: run it with sudo")
    package = newest(ROOT / "dist", "firearrow_*.deb")
    make_debian(package, MACHINE, "systemd", "systemd-sysv", "dbus")
    shutil.copy(package, MACHINE / "firearrow.deb")
    run("chroot", MACHINE, "dpkg", "--install", "/firearrow.deb")
    with machine() as leader:
        check_sandbox(leader)
        python(leader, EXCHANGE)
        check_restarts(leader)
        check_removal(leader)


@contextlib.contextmanager
def machine() -> Iterator[int]:
    """The process id of a systemd that has started the broker, in a network of its own."""
    options = ["--boot", "--private-network", "--register=no", "--keep-unit", "--console=pipe"]
    nspawn = subprocess.Popen(
        ["systemd-nspawn", "--quiet", f"--directory={MACHINE}", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        children, until = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children"), time.monotonic() + STATE_S
        while not (found := children.read_text().split()):
            assert time.monotonic() < until, "systemd-nspawn starts no system"
            time.sleep(0.1)
        wait_for(int(found[0]), "firearrow.service", "active")
        yield int(found[0])
    finally:
        nspawn.terminate()
        nspawn.wait()


def inside(leader: int, *command: str) -> str:
    return run("nsenter", f"--target={leader}", "--all", "--root", "--wd", *command)


def python(leader: int, program: str) -> str:
    """Our Python and client, in the machine's network."""
    output = run("nsenter", f"--target={leader}", "--net", sys.executable, "-c", program)
    print(output.rstrip())
    return output


def wait_for(leader: int, unit: str, state: str) -> None:
    until = time.monotonic() + STATE_S
    enter = ["nsenter", f"--target={leader}", "--all", "--root", "--wd"]
    while True:
        done = subprocess.run(
            [*enter, "systemctl", "is-active", unit], capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == state:
            return
        assert time.monotonic() < until, f"{unit}: {done.stdout}{done.stderr}"
        time.sleep(0.2)


def check_sandbox(leader: int) -> None:
    process = inside(leader, "systemctl", "show", "-P", "MainPID", "firearrow").strip()
    status = dict(
        line.split(":", 1) for line in inside(leader, "cat", f"/proc/{process}/status").splitlines()
    )
    user = inside(leader, "id", "--user", "firearrow").strip()
    assert status["Uid"].split() == [user] * 4
    assert (int(status["CapEff"], 16), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == (
        0,
        "1",
        "2",
    )
    text = inside(leader, "systemctl", "show", "-P", "StatusText", "firearrow")
    assert text.startswith("firearrow ready: broker 127.0.0.1:10911"), text
    print("started as firearrow, without capabilities, with a filter of system calls")


def check_restarts(leader: int) -> None:
    """A kill, a clean restart, and one during which no connection is refused."""
    inside(leader, "systemctl", "kill", "--signal=KILL", "firearrow")
    until = time.monotonic() + STATE_S
    while inside(leader, "systemctl", "show", "-P", "NRestarts", "firearrow").strip() != "1":
        assert time.monotonic() < until, "not restarted after a kill"
        time.sleep(0.2)
    wait_for(leader, "firearrow.service", "active")
    without = refused_while_restarting(leader)
    inside(leader, "systemctl", "stop", "firearrow.service")
    assert inside(leader, "systemctl", "show", "-P", "Result", "firearrow").strip() == "success"
    inside(leader, "systemctl", "start", "firearrow.socket")
    python(leader, EXCHANGE)  # its connection starts the service
    wait_for(leader, "firearrow.service", "active")
    with_socket = refused_while_restarting(leader)
    print(f"refused connections during a restart: {without}, with the socket unit {with_socket}")
    assert with_socket == 0 < without


def refused_while_restarting(leader: int) -> int:
    counting = subprocess.Popen(
        ["nsenter", f"--target={leader}", "--net", sys.executable, "-c", CONNECT],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)
    inside(leader, "systemctl", "restart", "firearrow.service")
    output, _ = counting.communicate(timeout=STATE_S)
    return int(output)


def refused(seconds: float) -> int:
    """How many connections to the broker are refused in this time."""
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(BROKER, STATE_S).close()
        except ConnectionRefusedError:
            count += 1
        time.sleep(0.01)
    return count


def check_removal(leader: int) -> None:
    inside(leader, "dpkg", "--purge", "firearrow")
    for unit in ("firearrow.service", "firearrow.socket"):
        wait_for(leader, unit, "inactive")
    print("purged: the service and the socket are stopped")


if __name__ == "__main__":
    main()
