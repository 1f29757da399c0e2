"""Start and stop: the ready line, the ports, the signals."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.client.local_broker import READY
from tests.integration.test_process import COMMAND
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.killing import killing
from tests.support.requests import pull_ext, send, send_ext
from tests.support.startup import constants

LOOPBACK = "127.0.0.1"


def test_ready_line_names_the_ports(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert READY.fullmatch(broker.line)
        assert f"store {tmp_path / 'store'}," in broker.line
        assert broker.address[0] == LOOPBACK
        with broker.connect() as to_broker, broker.connect_name_server() as to_name_server:
            assert to_broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            assert to_name_server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        assert "--listen 0.0.0.0" in broker.log.read_text()
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        ((), "--listen 0.0.0.0:0 --namesrv-listen 0.0.0.0:0"),
        (("--namesrv-listen", "off"), "--listen 0.0.0.0:0"),
        (("--listen", "0.0.0.0:0"), "--namesrv-listen 0.0.0.0:0"),
    ],
)
def test_the_hint_at_loopback_names_what_was_asked_for(
    tmp_path: Path, args: tuple[str, ...], hint: str
) -> None:
    with BrokerProcess(tmp_path / "store", *args) as broker:
        assert f"to accept connections from other hosts: {hint}\n" in broker.log.read_text()


def test_only_loopback_listens(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        inodes = set()
        for fd in Path(f"/proc/{broker.process.pid}/fd").iterdir():
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            if found:
                inodes.add(found[1])
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
        assert len(listening) == 3
        assert {address.partition(":")[0] for address in listening} == {"0100007F"}


def test_vip_port_takes_sends_and_refuses_pulls(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store") as broker,
        ClientSocket((LOOPBACK, broker.address[1] - 2), tls=broker.tls, keys=broker.keys) as vip,
    ):
        assert send(vip, "Vip", b"over the VIP port").code == 0
        assert vip.ask(RequestCode.PULL_MESSAGE, pull_ext("Vip")).code == 3
        assert vip.ask(RequestCode.LITE_PULL_MESSAGE, pull_ext("Vip")).code == 3


def test_name_server_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--namesrv-listen", "off") as broker:
        assert broker.name_server is None
        with broker.connect() as connection:
            assert send(connection, "Alone", b"x").code == 0
            assert connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Alone"}).code == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_signal_under_load_stops_cleanly(tmp_path: Path, number: signal.Signals, flush: str) -> None:
    with BrokerProcess(tmp_path / "store", "--set", f"flushDiskType={flush}") as broker:
        flowing = threading.Event()
        acknowledged: list[int] = []

        def produce() -> None:
            with broker.connect() as connection:
                try:
                    while True:
                        for _ in range(32):
                            opaque = connection.send_request(
                                RequestCode.SEND_MESSAGE_V2, send_ext("Load"), bytes(512)
                            )
                        for _ in range(32):
                            answer = connection.receive()
                            if answer.code == 0:
                                acknowledged.append(opaque)
                        flowing.set()
                except OSError:
                    pass

        threads = [threading.Thread(target=produce) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert flowing.wait(10)
        broker.process.send_signal(number)
        assert broker.process.wait(2) == 0
        for thread in threads:
            thread.join()
        assert not (broker.store / "abort").exists()
        assert "Traceback" not in broker.log.read_text()
    with BrokerProcess(tmp_path / "store") as again, again.connect() as connection:
        ext = {"topic": "Load", "queueId": "0"}
        stored = int(connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"])
        assert stored >= len(acknowledged) > 0


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_signals_during_the_stop_change_nothing(tmp_path: Path, first: signal.Signals) -> None:
    """A client that leaves many responses unread delays the stop; repeated to the end of the process."""
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Unread", bytes(200_000)).code == 0
        for _ in range(100):
            connection.send_request(RequestCode.PULL_MESSAGE, pull_ext("Unread"))
        broker.process.send_signal(first)
        deadline = time.monotonic() + 10
        while broker.process.poll() is None and time.monotonic() < deadline:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                broker.process.send_signal(number)
            time.sleep(0.002)
        assert broker.process.wait(1) == 0
        assert not (tmp_path / "store" / "abort").exists()


def test_repeated_sigterm_ends_a_name_server_cleanly(tmp_path: Path) -> None:
    words = [COMMAND, "namesrv", "--listen", "127.0.0.1:0"]
    with killing(
        subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, start_new_session=True)
    ) as process:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 0


@pytest.mark.parametrize("repeated", [True, False])
def test_only_a_second_interrupt_at_a_terminal_stops_at_once(tmp_path: Path, repeated: bool) -> None:
    """One that a wrapper passes on within a moment is the first one."""
    control, terminal = pty.openpty()
    words = [sys.executable, "-m", "firearrow.broker", "--store", str(tmp_path / "store")]
    words += ["--listen", "127.0.0.1:0", "--namesrv-listen", "off", "--set", "brokerName=b"]
    with killing(
        subprocess.Popen(
            ["sh", "-c", 'exec "$@" <"$0"', os.ttyname(terminal), *words, "--http", "off"],
            stdout=subprocess.PIPE,
            start_new_session=True,  # whose first terminal is the one that it opens
        )
    ) as process:
        assert process.stdout is not None
        port = int(re.search(rb"ready: broker 127.0.0.1:(\d+)", process.stdout.readline())[1])  # type: ignore[index]
        with ClientSocket(("127.0.0.1", port)) as connection:
            assert send(connection, "Unread", bytes(200_000)).code == 0
            for _ in range(100):
                connection.send_request(RequestCode.PULL_MESSAGE, pull_ext("Unread"))
            os.write(control, b"\x03")
            process.send_signal(signal.SIGINT)
            if repeated:
                time.sleep(0.5)
                os.write(control, b"\x03")
            assert process.wait(10) == (128 + signal.SIGINT if repeated else 0)
    os.close(control)
    os.close(terminal)


def test_nothing_is_served_before_progress_is_restored(tmp_path: Path) -> None:
    """Clients that come back at once, while the broker waits for a name server, see what was committed."""
    port = free_port()
    commit = {"consumerGroup": "CG", "topic": "T", "queueId": "0"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        names = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [
            *("--listen", f"127.0.0.1:{port}", "--namesrv", names),
            *("--set", f"haListenPort={free_port()}", "--set", "flushConsumerOffsetInterval=600000"),
        ]
        with BrokerProcess(tmp_path / "store", *words) as broker, broker.connect() as client:
            assert send(client, "T", b"x").code == 0
            client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"CG"}')
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "1"}).code == 0
            broker.kill()
        began = time.monotonic()
        with ThreadPoolExecutor(1) as starting:
            quick = constants({"firearrow.broker.services.registration:ANSWER_S": 2})
            started = starting.submit(BrokerProcess, tmp_path / "store", *words, environment=quick)
            while True:
                try:
                    client = ClientSocket(("127.0.0.1", port))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.005)
            with client:
                connected_s = time.monotonic() - began
                answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, commit)
            with started.result() as broker:
                assert answer.ext["offset"] == "1"
                assert broker.seconds > connected_s + 1  # it did wait
