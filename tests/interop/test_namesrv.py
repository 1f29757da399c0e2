"""Name servers know each other's brokers: Apache's broker registers with ours, ours with Apache's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.interop.peers import Apache, FireArrow
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually

pytestmark = pytest.mark.interop


def ask(name_server: str, code: int, ext: dict[str, str] | None = None) -> RemotingCommand:
    host, port = name_server.split(":")
    with ClientSocket((host, int(port))) as connection:
        return connection.ask(code, ext)


def brokers(name_server: str) -> dict[str, str]:
    """Broker name → address of its master."""
    table = fastjson.loads(ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"]
    return {name: data["brokerAddrs"]["0"] for name, data in table.items()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FireArrow]:
    with FireArrow(tmp_path_factory.mktemp("namesrv") / "ours", {"brokerName": "broker-ours"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def apache(ours: FireArrow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache's broker knows only our name server; its own name server runs as well."""
    need(lambda: java_class_path("client5"))
    store = tmp_path_factory.mktemp("apache") / "store"
    with Apache(store, {"namesrvAddr": ours.name_server, "brokerName": "broker-apache"}) as broker:
        yield broker


def test_apaches_broker_registers_with_our_name_server(ours: FireArrow, apache: Apache) -> None:
    eventually(
        lambda: "broker-apache" in brokers(ours.name_server), 60, "Apache's broker in our cluster info"
    )
    assert brokers(ours.name_server) == {"broker-apache": apache.address, "broker-ours": ours.address}
    route = fastjson.loads(
        ask(ours.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).body
    )
    assert {data["brokerName"]: data["perm"] for data in route["queueDatas"]} == {
        "broker-apache": 7,
        "broker-ours": 7,
    }


def test_our_broker_registers_with_apaches_name_server(apache: Apache, tmp_path: Path) -> None:
    settings = {"brokerName": "broker-second", "namesrvAddr": apache.name_server}
    with FireArrow(tmp_path / "second", settings) as second:
        eventually(
            lambda: "broker-second" in brokers(apache.name_server), 60, "ours in Apache's cluster info"
        )
        assert brokers(apache.name_server)["broker-second"] == second.address
        topic = {
            "topic": "Created",
            "defaultTopic": "TBW102",
            "readQueueNums": "3",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        assert ask(second.address, RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == ResponseCode.SUCCESS

        def routed() -> bool:
            answer = ask(apache.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Created"})
            if answer.code != ResponseCode.SUCCESS:
                return False
            (queue,) = fastjson.loads(answer.body)["queueDatas"]
            return (queue["brokerName"], queue["readQueueNums"], queue["writeQueueNums"]) == (
                "broker-second",
                3,
                2,
            )

        eventually(routed, 10, "a route of our new topic at Apache's name server")
        second.stop()
    eventually(lambda: "broker-second" not in brokers(apache.name_server), 10, "that ours unregisters")
