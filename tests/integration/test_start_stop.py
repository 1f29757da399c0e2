"""Start and stop: the ready line, the ports, the signals."""

import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.client.local_broker import READY
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull_ext, send, send_ext

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


def test_second_signal_stops_at_once(tmp_path: Path) -> None:
    """The clean stop is delayed by a client that leaves many responses unread."""
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Unread", bytes(200_000)).code == 0
        for _ in range(100):
            connection.send_request(RequestCode.PULL_MESSAGE, pull_ext("Unread"))
        broker.process.send_signal(signal.SIGTERM)
        broker.process.send_signal(signal.SIGINT)
        assert broker.process.wait(2) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


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
            started = starting.submit(BrokerProcess, tmp_path / "store", *words)
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
