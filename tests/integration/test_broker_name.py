"""A store keeps its broker's name, and a start under another one is reported."""

import json
import socket
from pathlib import Path

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send


def registered(broker: BrokerProcess) -> list[str]:
    with broker.connect_name_server() as names:
        answer = fastjson.loads(names.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    return list(answer["brokerAddrTable"])


def test_a_store_keeps_its_brokers_name(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store, "--set", "brokerName=first", "--set", "brokerClusterName=C1") as broker:
        assert registered(broker) == ["first"]
        with broker.connect() as client:
            assert send(client, "T", b"x").code == 0
        broker.stop()
    with BrokerProcess(store, "--set", "brokerClusterName=C1") as broker:
        assert registered(broker) == ["first"]
        assert (
            f"keeps its brokerName first, although this host is {socket.gethostname()}"
            in broker.log.read_text()
        )
        with broker.connect() as client:
            assert b"brokerName=first\n" in client.ask(RequestCode.GET_BROKER_CONFIG).body
        broker.kill()
    broker.log.write_text("")
    with BrokerProcess(store, "--set", "brokerName=second", "--set", "brokerClusterName=C2") as broker:
        assert registered(broker) == ["second"]
        log = broker.log.read_text()
        assert "WARNING" in log
        assert "this store belonged to the broker first and is opened as second" in log
        assert "this store belonged to the cluster C1 and is opened in C2" in log
        broker.stop()
    broker.log.write_text("")
    with BrokerProcess(store, "--set", "brokerName=second", "--set", "brokerClusterName=C2") as broker:
        assert "belonged" not in broker.log.read_text()
    record = json.loads((store / "config" / "brokerName.json").read_bytes())
    assert record == {"brokerClusterName": "C2", "brokerId": 0, "brokerName": "second"}


def test_a_damaged_record_stops_no_broker(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    for text in (
        b"{",
        b"[]",
        b'{"brokerName":"a\\nb","brokerClusterName":"C"}',
        b'{"brokerName":7}',
        b"\xff" * 999,
    ):
        (config / "brokerName.json").write_bytes(text)
        with BrokerProcess(tmp_path / "store") as broker:
            assert registered(broker) == [socket.gethostname()]
            assert "brokerName.json" in broker.log.read_text()
        (config / "brokerName.json.bak").unlink(missing_ok=True)
