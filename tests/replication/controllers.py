"""Apache's name server with a controller in it, as a process, and brokers under it."""

import json
from collections.abc import Sequence
from pathlib import Path

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import end, java, started
from tests.interop.peers import address
from tests.replication.pairs import end_of, words
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import send, topic_ext

SEGMENT, TOPIC = 1 << 18, "T"
SIZES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "100000",
}
UNDER = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "slaveReadEnable": "true",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
}


def broker_under(store: Path, port: int, **settings: str) -> BrokerProcess:
    """One of ours, on a port of its own: others find it there again after its role has changed."""
    listen = ("--listen", f"127.0.0.1:{port or free_port()}", "--namesrv-listen", "off")
    return BrokerProcess(store, *listen, *words(SIZES | UNDER | settings))


def takes_writes(address: tuple[str, int]) -> bool:
    try:
        with ClientSocket(address) as connection:
            connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
            return send(connection, TOPIC, b"probe", queue_id=0).code == 0
    except OSError:
        return False


def sent(address: tuple[str, int], count: int) -> int:
    """Send that many messages; the log's end."""
    with ClientSocket(address) as connection:
        for number in range(count):
            answer = send(connection, TOPIC, b"%d" % number * 40, queue_id=number % 4)
            assert answer.code == 0, answer.remark
        return end_of(connection)


def _dledger(peers: Sequence[int], number: int) -> dict[str, str]:
    return {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": ";".join(f"n{index}-127.0.0.1:{peer}" for index, peer in enumerate(peers)),
        "controllerDLegerSelfId": f"n{number}",
    }


def _jraft(peers: Sequence[int], number: int) -> dict[str, str]:
    """The controllers have a port beside theirs for each other."""
    among = [f"127.0.0.1:{peer + 1}" for peer in peers]
    return {
        "jRaftGroupId": "group1",
        "jRaftServerId": among[number],
        "jRaftInitConf": ",".join(among),
        "jRaftControllerRPCAddr": ",".join(f"127.0.0.1:{peer}" for peer in peers),
    }


class Controllers:
    """`address` of the controller and `name_server`, as `host:port`.

    `peers`: the ports of all controllers, of which this one is `number`; none: it is alone. `kind`: DLedger or jRaft.
    """

    def __init__(
        self,
        home: Path,
        peers: Sequence[int] = (),
        number: int = 0,
        kind: str = "DLedger",
        wait_s: float = 60,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port, peers = free_port(), peers or [free_port()]
        self.name_server, self.address = f"127.0.0.1:{port}", f"127.0.0.1:{peers[number]}"
        settings = {
            "listenPort": str(port),
            "rocketmqHome": str(home),
            "enableControllerInNamesrv": "true",
            "controllerType": kind,
            "controllerStorePath": str(home / "controller"),
            "scanNotActiveBrokerInterval": "1000",
            **(_dledger(peers, number) if kind == "DLedger" else _jraft(peers, number)),
        }
        conf = home / "namesrv.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = ("-Xms128m", f"-Drocketmq.home.dir={home}")
        self.log = home / "out.log"
        command = [*java("client5", "Controllers", home, "-Xmx512m", *options), str(conf)]
        self.process = started(command, self.log, b"controllers ready", wait_s)

    def settings(self, name: str) -> dict[str, str]:
        """What a broker of this name needs."""
        return UNDER | {
            "brokerName": name,
            "controllerAddr": self.address,
            "namesrvAddr": self.name_server,
        }

    def broker(self, store: Path, name: str, port: int = 0, **settings: str) -> BrokerProcess:
        """One of ours."""
        return broker_under(store, port, **self.settings(name) | settings)

    def replica_info(self, name: str) -> dict[str, object]:
        """What the controller knows of the pair: master, epoch, sync state set."""
        with ClientSocket(address(self.address)) as connection:
            answer = connection.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": name})
        members = json.loads(answer.body or b"{}")
        return {
            "code": answer.code,
            "master": answer.ext.get("masterAddress"),
            "epoch": int(answer.ext.get("masterEpoch", "0")),
            "set": sorted(members.get("syncStateSet", ())),
        }

    def leader(self) -> str:
        """The address of the controllers' leader as this one knows it; empty: it knows none."""
        try:
            with ClientSocket(address(self.address)) as connection:
                answer = connection.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
        except OSError:
            return ""
        return answer.ext.get("controllerLeaderAddress", "")

    def kill(self) -> None:
        end(self.process)
