"""A master and a slave of one name, and what the tests compare of them."""

import hashlib
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import send, topic_ext

SEGMENT = 1 << 18
SIZES = {
    "brokerName": "pair",
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "100000",
    "haSendHeartbeatInterval": "200",
}
TOPIC = "Followed"
SECRET = "a secret of sixteen or more"


def own_ports() -> tuple[str, ...]:
    """Arguments of a broker that starts again, as a promoted one does: no new connection takes its ports meanwhile."""
    port = free_port()
    return "--listen", f"127.0.0.1:{port}", "--namesrv-listen", f"127.0.0.1:{port + 2}"


def words(settings: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))


def start_master(store: Path, **settings: str) -> BrokerProcess:
    return BrokerProcess(store, *own_ports(), *words(SIZES | settings))


def start_slave(store: Path, name_server: str, ha_master: str = "", **settings: str) -> BrokerProcess:
    role = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
    if ha_master:
        role["haMasterAddress"] = ha_master
    return BrokerProcess(store, *own_ports(), "--namesrv", name_server, *words(SIZES | role | settings))


@contextmanager
def paused(process: subprocess.Popen[Any]) -> Iterator[None]:
    """SIGSTOP: a process that hangs."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def name_server(master: BrokerProcess) -> str:
    assert master.name_server is not None
    return "{}:{}".format(*master.name_server)


def fill(connection: ClientSocket, count: int, size: int = 300, topic: str = TOPIC) -> None:
    """Send that many messages to the topic's four queues, in sizes around `size`."""
    connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
    for number in range(count):
        body = f"{number:06d}".encode() * (1 + (number * 7919) % (size // 3))
        assert send(connection, topic, body, queue_id=number % 4).code == 0


def end_of(connection: ClientSocket) -> int:
    """Of the broker's log; -1 while its store starts (Apache's)."""
    answer = connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"]) if answer.code == 0 else -1


def ha_client(connection: ClientSocket) -> dict[str, object]:
    """What a slave tells of its way to the master (907)."""
    status = json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)
    assert status["master"] is False
    client: dict[str, object] = status["haClientRuntimeInfo"]
    return client


def digests(store: Path, end: int) -> dict[str, str]:
    """sha256 of each file of the log, the last one up to the end."""
    found = {}
    for path in sorted((store / "commitlog").iterdir()):
        base = int(path.name)
        if base < end:
            data = path.read_bytes()[: end - base]
            found[path.name] = hashlib.sha256(data).hexdigest()
    return found
