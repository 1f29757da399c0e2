"""A name server with supportActingMaster, a pair under it, and what clients see while the master is gone."""

import json
from pathlib import Path

from bench.ports import free_port
from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.interop.peers import Apache, FireArrow, address
from tests.replication.pairs import end_of, words
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, records, send, send_ext, topic_ext

TOPIC, LATER, GROUP = "Followed", "Later", "Reader"
BOTH = {"0": "master", "1": "slave"}
OWN = {"brokerName": "names", "brokerClusterName": "Names"}
PAIR = {
    "brokerName": "broker-a",
    "enableSlaveActingMaster": "true",
    "totalReplicas": "2",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": "100000",
    "messageDelayLevel": "1s 8s 1h",
    "timerWheelEnable": "true",
    "haSendHeartbeatInterval": "1000",
}
OURS = {"mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
APACHES = {"brokerIP2": "127.0.0.1", "slaveReadEnable": "true"}
"""Apache's slave refuses reads without it, also while it acts."""
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
ROLES = {"master": {}, "slave": SLAVE, "second": SLAVE | {"brokerId": "2"}}
Broker = BrokerProcess | Apache


class Rig:
    """`names`, `master` and `slave` say whose they are: `ours` or `apache`."""

    def __init__(self, folder: Path, names: str = "ours", master: str = "ours", slave: str = "ours") -> None:
        self.folder = folder
        self._kinds = {"master": master, "slave": slave, "second": slave}
        self.names = FireArrow(folder / "names", OWN) if names == "ours" else Apache(folder / "names", OWN)
        with self.name_server() as connection:
            body = b"supportActingMaster=true\nnotifyMinBrokerIdChanged=true"
            assert connection.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body).code == 0
        self._ports = {role: free_port() for role in self._kinds}
        self.running: dict[str, Broker] = {}

    def name_server(self) -> ClientSocket:
        return ClientSocket(address(self.names.name_server))

    def start(self, role: str, *, listen: str = "127.0.0.1", **more: str) -> Broker:
        """`listen`: address of one of ours."""
        settings = PAIR | ROLES[role] | more
        folder, port = self.folder / role, self._ports[role]
        if self._kinds[role] == "ours":
            ports = ("--listen", f"{listen}:{port}", "--namesrv", self.names.name_server)
            broker: Broker = BrokerProcess(folder, *ports, *words(settings | OURS))
        else:
            broker = Apache(folder, settings | APACHES | {"namesrvAddr": self.names.name_server})
        self.running[role] = broker
        return broker

    def connect(self, role: str) -> ClientSocket:
        broker = self.running[role]
        return ClientSocket(self._address(broker))

    @staticmethod
    def _address(broker: Broker) -> tuple[str, int]:
        return broker.address if isinstance(broker, BrokerProcess) else address(broker.address)

    def kill(self, role: str) -> None:
        self.running.pop(role).kill()

    def close(self) -> None:
        for role in list(self.running):
            self.kill(role)
        (self.names.broker if isinstance(self.names, FireArrow) else self.names).kill()

    # ---- what the name server says ----

    def route(self, topic: str = TOPIC) -> tuple[dict[str, str], int]:
        """Role by id, and the permission."""
        with self.name_server() as connection:
            answer = connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code != 0:
            return {}, 0
        body = fastjson.loads(answer.body)
        roles = {"{}:{}".format(*self._address(broker)): role for role, broker in self.running.items()}
        found = [data for data in body["brokerDatas"] if data["brokerName"] == "broker-a"]
        queues = [data for data in body["queueDatas"] if data["brokerName"] == "broker-a"]
        if not found or not queues:
            return {}, 0
        shown = {str(key): roles.get(value, value) for key, value in found[0]["brokerAddrs"].items()}
        return shown, int(queues[0]["perm"])

    def wait_route(self, roles: dict[str, str], perm: int, within_s: float = 30) -> None:
        eventually(lambda: self.route() == (roles, perm), within_s, f"the route {roles} {perm}")

    # ---- what clients see ----

    def in_step(self, within_s: float = 40) -> None:
        """The slave has the whole log, and the topics."""
        with self.connect("master") as master, self.connect("slave") as slave:
            eventually(lambda: end_of(slave) == end_of(master) > 0, within_s, "the master's end")

    def copied(self, offset: int, role: str = "slave") -> None:
        with self.connect(role) as slave:
            eventually(lambda: committed(slave) == offset, 30, f"the offset {offset} at the slave")


def make(connection: ClientSocket) -> None:
    """Topics and group."""
    for topic in (TOPIC, LATER):
        connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1))
    group = b'{"groupName":"Reader","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0


def fill(connection: ClientSocket) -> None:
    """Ten messages, m000 on."""
    make(connection)
    for number in range(10):
        assert send(connection, TOPIC, b"m%03d" % number).code == 0


def send_later(connection: ClientSocket) -> None:
    """A message of the delay level of 8 s."""
    assert (
        connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(LATER, i="DELAY\x012\x02"), b"later").code == 0
    )


def commit(connection: ClientSocket, offset: int) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(connection: ClientSocket) -> int:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int(answer.ext["offset"]) if answer.code == 0 else -1


def read(connection: ClientSocket, offset: int, topic: str = TOPIC) -> list[bytes]:
    answer = pull(connection, topic, offset, consumerGroup=GROUP)
    return [record.body for record in records(answer.body)] if answer.code == 0 else []


def lock(connection: ClientSocket) -> bool:
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    body = json.dumps({"consumerGroup": GROUP, "clientId": "c@1", "mqSet": [queue]}).encode()
    answer = connection.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
    return answer.code == 0 and b'"queueId":0' in answer.body


def acts(rig: Rig) -> None:
    """The slave serves reads, commits and locks, and no sends."""
    with rig.connect("slave") as slave:
        eventually(lambda: read(slave, 4) == [b"m%03d" % number for number in range(4, 10)], 10, "the reads")
        commit(slave, 8)
        assert committed(slave) == 8
        assert lock(slave)
        assert send(slave, TOPIC, b"no").code == 14
