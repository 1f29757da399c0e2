"""The broker and the name server as processes: outputs without a reader, signals, no home folder."""

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.killing import killing
from tests.support.requests import send

COMMAND = str(Path(sys.executable).with_name("firearrow"))


def connected(port: int) -> ClientSocket:
    def connect() -> ClientSocket | None:
        with suppress(OSError):
            return ClientSocket(("127.0.0.1", port))
        return None

    found = eventually(connect, 30)
    assert found is not None
    return found


@contextmanager
def server(
    folder: Path,
    kind: str,
    port: int,
    *args: str,
    **how: Any,  # noqa: ANN401
) -> Iterator[subprocess.Popen[bytes]]:
    """`firearrow broker` or `firearrow namesrv` at this port; killed at the end."""
    listen = "--listen", f"127.0.0.1:{port}"
    more = ("--store", str(folder / "store"), "--namesrv-listen", "off") if kind == "broker" else ()
    process = subprocess.Popen(
        [COMMAND, kind, *listen, *more, *args], env=os.environ | {"HOME": str(folder)}, **how
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def close_outputs() -> None:
    os.close(1)
    os.close(2)


def close_all() -> None:
    os.close(0)
    close_outputs()


def to_a_full_disk() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)


def to_a_reader_that_left() -> None:
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    os.close(reader)
    os.close(writer)


def to_a_full_pipe() -> None:
    """The reader stays open in the process itself, and reads nothing."""
    _, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    os.dup2(writer, 1)
    os.dup2(writer, 2)


@pytest.mark.parametrize(
    ("kind", "outputs"),
    [
        ("broker", close_outputs),
        ("broker", to_a_full_disk),
        ("broker", to_a_reader_that_left),
        ("broker", to_a_full_pipe),
        ("namesrv", close_all),
        ("namesrv", to_a_full_pipe),
    ],
)
def test_outputs_that_cannot_be_written_end_nothing(
    tmp_path: Path, kind: str, outputs: Callable[[], None]
) -> None:
    port = free_port()
    with server(tmp_path, kind, port, preexec_fn=outputs, close_fds=False) as process:
        connected(port).close()
        for _ in range(30):
            with socket.create_connection(("127.0.0.1", port), 5) as probe:
                probe.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                probe.settimeout(5)
                probe.recv(1)
        with connected(port) as connection:
            if kind == "broker":
                assert send(connection, "Orders", b"x").code == 0
            else:
                assert connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_the_log_is_complete_and_in_order_when_the_start_fails(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"unknown{number}=1\n" for number in range(200)) + "namesrvAddr=nowhere\n")
    words = "broker", "--config", str(config), "--store", str(tmp_path / "store")
    done = run_forked(*words, "--listen", "127.0.0.1:0")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert [line.rpartition("unknown key ")[2] for line in lines[:200]] == [f"unknown{n}" for n in range(200)]
    assert lines[-1].startswith("firearrow: namesrvAddr must be")


def test_repeated_warnings_are_counted_in_the_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        for _ in range(100):
            with socket.create_connection(broker.address, 5) as probe:
                probe.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                probe.settimeout(5)
                probe.recv(1)
        assert broker.stop() == 0
        log = broker.log.read_text()
        assert log.count(": closed 127.0.0.1:") == 20
        assert "repeated 80 times within 10 s: closed %s:%d: %s\n" in log


def test_sighup_stops_cleanly(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Orders", b"x").code == 0
        broker.process.send_signal(signal.SIGHUP)
        broker.process.send_signal(signal.SIGHUP)
        assert broker.process.wait(5) == 0
        assert not (broker.store / "abort").exists()


@pytest.mark.parametrize("with_config", [False, True])
@pytest.mark.parametrize("kind", ["broker", "namesrv"])
def test_a_closed_terminal_stops_cleanly(tmp_path: Path, kind: str, with_config: bool) -> None:
    ours, theirs = pty.openpty()
    port = free_port()
    outputs = {"stdin": theirs, "stdout": theirs, "stderr": theirs}

    def control_terminal() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))

    args = ("--config", os.devnull) if with_config else ()
    with server(tmp_path, kind, port, *args, preexec_fn=control_terminal, **outputs) as process:
        os.close(theirs)
        text = b""
        while b"firearrow ready" not in text:
            text += os.read(ours, 4096)
        os.close(ours)
        assert process.wait(10) == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_signals_without_a_meaning_end_nothing(tmp_path: Path) -> None:
    """SIGHUP is ignored under nohup."""
    port = free_port()
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with server(tmp_path, "broker", port, stdout=subprocess.PIPE, **ignore) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"firearrow ready")
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(number)
        with connected(port) as connection:
            assert send(connection, "Orders", b"x").code == 0
        process.terminate()
        assert process.wait(5) == 0
        process.stdout.close()


ALONE = ["unshare", "-U", "--map-user=12345", "env", "-u", "HOME"]
"""Runs a command as a user without a home folder."""


@pytest.fixture
def no_home() -> list[str]:
    try:
        subprocess.run([*ALONE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a user namespace is needed: {error}")
    return ALONE


def test_no_home_folder_is_needed_by_the_broker(tmp_path: Path, no_home: list[str]) -> None:
    places = "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"
    command = [*no_home, COMMAND, "broker", *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, "name a folder with --store" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    with killing(
        subprocess.Popen([*command, "--store", str(tmp_path / "store")], stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"firearrow ready")
        process.terminate()
        assert process.wait(5) == 0


def test_no_home_folder_is_needed_by_the_name_server(no_home: list[str]) -> None:
    port = free_port()
    command = [*no_home, COMMAND, "namesrv", "--listen", f"127.0.0.1:{port}"]
    with killing(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"firearrow ready")
        entry = {"namespace": "n", "key": "k", "value": "v"}
        with connected(port) as connection:
            assert connection.ask(RequestCode.PUT_KV_CONFIG, entry).code == 0
            assert connection.ask(RequestCode.GET_KV_CONFIG, entry).ext["value"] == "v"
        process.terminate()
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert b"set HOME" in process.stderr.read()


def test_no_home_folder_is_needed_by_the_options_of_clients(no_home: list[str]) -> None:
    program = (
        "from firearrow.client import *\n"
        "options = PushConsumerOptions(), PullConsumerOptions(), ProducerOptions(), PopConsumerOptions()\n"
        "try: options[0].offsets_folder()\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run(
        [*no_home, sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (
        0, "there is no home folder for the offsets: set local_offsets\n",
    ), done.stderr  # fmt: skip


def test_the_name_server_reads_a_file_of_apache(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "namesrv.conf"
    config.write_bytes(
        b"\xef\xbb\xbflistenPort=%d\nkvConfigPath = %b/my\\ kv.json\norderMessageEnable true\n"
        b"serverWorkerThreads=8\nclusterTest=true\nenableTopicLst=false\n" % (port, bytes(tmp_path))
    )
    command = [COMMAND, "namesrv", "--config", str(config)]
    with ForkedCommand(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(f"firearrow ready: name server 127.0.0.1:{port}")
        with connected(port) as connection:
            answered = connection.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
            assert "orderMessageEnable=true\n" in answered
            entry = {"namespace": "n", "key": "k", "value": "v"}
            assert connection.ask(RequestCode.PUT_KV_CONFIG, entry).code == 0
        process.terminate()
        assert process.wait(5) == 0
        log = process.stderr.read()
    assert "clusterTest has no effect here" in log
    assert "unknown key enableTopicLst (did you mean enableTopicList?)" in log
    assert "serverWorkerThreads" not in log
    assert (tmp_path / "my kv.json").exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tls.server.mode=enforcing\ntls.test.mode.enable=false", "certPath"),
        ("enableTopicList=1", "enableTopicList"),
        ("listenPort=x", "listenPort"),
    ],
)
def test_a_wrong_file_of_the_name_server_is_refused(tmp_path: Path, text: str, named: str) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text(text)
    done = run_forked("namesrv", "--config", str(config))
    assert (done.returncode, named in done.stderr) == (2, True)
