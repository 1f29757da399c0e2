"""Two real broker processes: the second registers with the first one's name server, and is removed when it stops."""

import time
from pathlib import Path

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

WAIT_S = 20.0


def addresses(naming: ClientSocket, topic: str) -> dict[str, str]:
    """Broker name → address of its master, from a route."""
    answer = naming.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert answer.code == 0, answer.remark
    return {
        data["brokerName"]: data["brokerAddrs"]["0"] for data in fastjson.loads(answer.body)["brokerDatas"]
    }


def settled(naming: ClientSocket, expected: dict[str, str]) -> dict[str, str]:
    """The addresses once they are as expected, or as they are at the timeout: updates arrive over a socket."""
    deadline = time.monotonic() + WAIT_S
    while (found := addresses(naming, "TBW102")) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_a_second_broker_comes_and_goes(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "a", "--set", "brokerName=a") as first,
        first.connect_name_server() as naming,
    ):
        assert first.name_server is not None
        one = {"a": f"127.0.0.1:{first.address[1]}"}
        assert addresses(naming, "TBW102") == one
        there = "127.0.0.1:" + str(first.name_server[1])
        options = ("--set", "brokerName=b", "--namesrv-listen", "off", "--namesrv", there)
        with BrokerProcess(tmp_path / "b", *options) as second:
            both = {**one, "b": f"127.0.0.1:{second.address[1]}"}
            assert settled(naming, both) == both
            assert second.stop() == 0
            assert settled(naming, one) == one


def test_kv_values_survive_the_process(tmp_path: Path) -> None:
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    with BrokerProcess(tmp_path / "a") as broker, broker.connect_name_server() as naming:
        assert naming.ask(RequestCode.PUT_KV_CONFIG, {**key, "value": "a:4"}).code == 0
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "a") as broker, broker.connect_name_server() as naming:
        assert naming.ask(RequestCode.GET_KV_CONFIG, key).ext == {"value": "a:4"}
