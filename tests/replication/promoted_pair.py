"""PromotedPair: a name server, a master and its slave, and what tests of promotions ask them."""

import json
from pathlib import Path
from typing import Self

from bench.ports import free_port
from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import SIZES, end_of, fill, name_server, words
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually


def address_of(broker: BrokerProcess) -> str:
    return "{}:{}".format(*broker.address)


def promoted(broker: BrokerProcess, *words: str) -> Ran:
    return here("replica", "promote", address_of(broker), "--yes", *words)


def is_master(connection: ClientSocket) -> bool:
    master: bool = json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)["master"]
    return master


def _slaves_in_sync(connection: ClientSocket) -> int:
    count: int = json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)["inSyncSlaveNums"]
    return count


def state_of(broker: BrokerProcess) -> str:
    """Of a slave; empty: it is a master, or starts again."""
    try:
        with broker.connect() as client:
            status = json.loads(client.ask(RequestCode.GET_BROKER_HA_STATUS).body)
    except OSError:
        return ""
    return str(status["haClientRuntimeInfo"].get("state", ""))


def option(connection: ClientSocket, key: str) -> str:
    text = connection.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)[key]


class PromotedPair:
    """A name server, a master and its slave, each a process. `names`: another process's name server."""

    def __init__(self, folder: Path, names: str = "", **settings: str) -> None:
        self.folder, self.settings = folder, settings
        self._own = None if names else BrokerProcess(folder / "names", *words({"brokerName": "names"}))
        self.names = names if self._own is None else name_server(self._own)
        self.ports = {"master": free_port(), "slave": free_port()}
        self.listen = {"master": free_port(), "slave": free_port()}
        self.master = self.start_master()
        self.slave = self.start_slave()

    def ask_names(self) -> ClientSocket:
        if self._own is not None:
            return self._own.connect_name_server()
        host, _, port = self.names.rpartition(":")
        return ClientSocket((host, int(port)))

    def start_master(self, **settings: str) -> BrokerProcess:
        return self._start("master", SIZES | self.settings | settings)

    def start_slave(self, **settings: str) -> BrokerProcess:
        role = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
        return self._start("slave", SIZES | self.settings | role | settings)

    def _start(self, name: str, settings: dict[str, str]) -> BrokerProcess:
        listen = "--listen", f"127.0.0.1:{self.listen[name]}"
        port = {"haListenPort": str(self.ports[name])}
        return BrokerProcess(self.folder / name, *listen, "--namesrv", self.names, *words(port | settings))

    def fill(self, count: int) -> None:
        """Send messages to the master."""
        with self.master.connect() as client:
            fill(client, count)

    def caught_up(self) -> None:
        """Wait until both have the same log, and one counts the other as its slave; empty logs are always equal."""
        with self.master.connect() as first, self.slave.connect() as second:
            eventually(lambda: end_of(first) == end_of(second), what="the slave")
            eventually(lambda: _slaves_in_sync(first) + _slaves_in_sync(second), what="its master")

    def knows(self, topic: str) -> None:
        """Wait until the slave and the name server do."""
        of_topic = {"topic": topic}
        with self.slave.connect() as slave:
            eventually(lambda: slave.ask(RequestCode.GET_TOPIC_CONFIG, of_topic).code == 0, what="the topic")
        with self.ask_names() as names:
            eventually(
                lambda: names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, of_topic).code == 0, what="its route"
            )

    def route(self) -> dict[int, str]:
        """brokerId → address, as clients get it."""
        with self.ask_names() as connection:
            answer = connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            found = fastjson.loads(answer.body)["brokerAddrTable"].get("pair", {})
            return {int(number): address for number, address in found.get("brokerAddrs", {}).items()}

    def close(self) -> None:
        for each in (self.master, self.slave, self._own):
            if each is not None:
                each.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
