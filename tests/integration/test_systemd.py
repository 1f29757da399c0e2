"""The protocols of systemd with real sockets: readiness, stop, and listening sockets that it passes."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import systemd
from tests.support.client_socket import ClientSocket
from tests.support.requests import send

LOOPBACK = "127.0.0.1"
PASS_SOCKETS = """
import os, sys
count = int(sys.argv[1])
passed = [os.dup(int(number)) for number in sys.argv[2 : 2 + count]]
high = [os.dup2(number, 100 + index) for index, number in enumerate(passed)]
for index, number in enumerate(high):
    os.dup2(number, 3 + index)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
os.execv(sys.argv[2 + count], sys.argv[2 + count:])
"""
"""What systemd does: the sockets become descriptors 3 and up of a process that knows their number."""


@contextlib.contextmanager
def manager(path: Path, *, abstract: bool) -> Iterator[tuple[socket.socket, str]]:
    """The socket of a service manager, and its NOTIFY_SOCKET."""
    name = f"firearrow-{os.getpid()}-{path.name}" if abstract else str(path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name if abstract else name)
        receiver.settimeout(20)
        yield receiver, "@" + name if abstract else name


@contextlib.contextmanager
def started(
    command: str, *args: str, environment: dict[str, str]
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process of `firearrow` and its first line."""
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("firearrow")), command, *args],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    with _ended(process) as line:
        yield process, line


@contextlib.contextmanager
def _ended(process: "subprocess.Popen[str]") -> Iterator[str]:
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 20)[0]
        yield process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_is_sent_as_one_datagram(tmp_path: Path, abstract: bool) -> None:
    with manager(tmp_path, abstract=abstract) as (receiver, name):
        systemd.notify(systemd.READY, "STATUS=ready", environment={"NOTIFY_SOCKET": name})
        assert receiver.recv(1024) == b"READY=1\nSTATUS=ready"


def test_without_a_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    systemd.notify(systemd.READY, environment={})
    assert not caplog.records


def test_a_manager_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    systemd.notify(systemd.READY, environment={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert f"cannot report READY=1 to NOTIFY_SOCKET {tmp_path}/gone: No such file or directory" in caplog.text


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_ready_and_stop_are_reported(tmp_path: Path, command: str) -> None:
    args = ["--listen", f"{LOOPBACK}:0"]
    if command == "broker":
        args += ["--namesrv-listen", f"{LOOPBACK}:0", "--store", str(tmp_path / "store")]
    with manager(tmp_path, abstract=False) as (receiver, name):
        environment = {"NOTIFY_SOCKET": name, "HOME": str(tmp_path)}
        with started(command, *args, environment=environment) as (process, line):
            assert receiver.recv(1024).decode() == f"READY=1\nSTATUS={line.rstrip()}"
            process.send_signal(signal.SIGTERM)
            assert receiver.recv(1024) == b"STOPPING=1"
            assert process.wait(10) == 0


# ---- sockets ----


def listening(host: str = LOOPBACK) -> socket.socket:
    return socket.create_server((host, 0))


def start_with(descriptors: list[int], *args: str, log: Path) -> "subprocess.Popen[str]":
    """`firearrow` with these as descriptors 3 and up; its log goes to a file."""
    command = [sys.executable, "-c", PASS_SOCKETS, str(len(descriptors)), *map(str, descriptors)]
    with log.open("wb") as errors:
        return subprocess.Popen(
            [*command, str(Path(sys.executable).with_name("firearrow")), *args],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            pass_fds=descriptors,
        )


def broker_sockets() -> list[socket.socket]:
    """Of a broker's port, its VIP port two below, and a name server's."""
    while True:
        port = listening()
        try:
            vip = socket.create_server((LOOPBACK, port.getsockname()[1] - 2))
        except OSError:
            port.close()
            continue
        return [listening(), port, vip]


@pytest.mark.parametrize("fast_sockets", ["true", "false"])
def test_a_broker_serves_the_sockets_that_are_bound_to_its_addresses(
    tmp_path: Path, fast_sockets: str
) -> None:
    naming, port, _ = sockets = broker_sockets()
    addresses = [each.getsockname() for each in sockets]
    args = ("broker", "--store", str(tmp_path / "store"), "--set", f"fastSockets={fast_sockets}")
    listen = (f"{LOOPBACK}:{port.getsockname()[1]}", f"{LOOPBACK}:{naming.getsockname()[1]}")
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(ClientSocket(addresses[1]))  # waits until the broker is there
        log = tmp_path / "log"
        options = ("--listen", listen[0], "--namesrv-listen", listen[1])
        process = start_with([each.fileno() for each in sockets], *args, *options, log=log)
        line = stack.enter_context(_ended(process))
        assert f"broker {listen[0]}, name server {listen[1]}," in line
        assert send(early, "Early", b"x").code == 0
        with ClientSocket(addresses[0]) as to_naming, ClientSocket(addresses[2]) as to_vip:
            assert to_naming.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
            assert send(to_vip, "Early", b"x").code == 0
        for each in sockets:  # only those of the broker are left
            each.close()
        with ClientSocket(addresses[1]) as late:
            assert send(late, "Early", b"x").code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert "nothing here listens" not in log.read_text()
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)


def test_sockets_outlast_a_restart_without_a_refused_connection(tmp_path: Path) -> None:
    """systemd keeps them: who connects between two processes waits for the second one."""
    with listening() as naming:
        address = naming.getsockname()
        args = ("namesrv", "--listen", f"{LOOPBACK}:{address[1]}")
        for _ in range(2):
            with ClientSocket(address) as connection:
                process = start_with([naming.fileno()], *args, log=tmp_path / "log")
                with _ended(process) as line:
                    assert f"name server {LOOPBACK}:{address[1]}," in line
                    assert connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(10) == 0


def test_a_socket_that_nothing_needs_is_closed_with_a_warning(tmp_path: Path) -> None:
    with listening() as other, socket.socket() as silent, (tmp_path / "file").open("wb") as file:
        log, port = tmp_path / "log", other.getsockname()[1]
        numbers = [other.fileno(), silent.fileno(), file.fileno()]
        process = start_with(numbers, "namesrv", "--listen", f"{LOOPBACK}:0", log=log)
        with _ended(process) as line:
            assert re.search(rf"name server {LOOPBACK}:\d+,", line)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        text = log.read_text()
    assert f"nothing here listens at {LOOPBACK}:{port}," in text
    assert "descriptor 4 of LISTEN_FDS is not a listening TCP socket" in text
    assert "descriptor 5 of LISTEN_FDS is not a socket" in text


def test_variables_of_another_process_are_ignored() -> None:
    environment = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    passed = systemd.PassedSockets(environment)
    assert environment == {}
    assert passed.take(socket.AF_INET, LOOPBACK, 10911) is None
