"""How far copies are behind, in bytes, time and messages: in 907, the status and the metrics of both brokers."""

import json
import re
import time
from pathlib import Path
from typing import Any

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.replication.log.replica_lag import Lag, LogTimes
from tests.metrics.scrapes import WatchedBroker, value, watched
from tests.replication.pairs import SIZES, ha_client, name_server, words
from tests.replication.raw_slave import Master, RawSlave
from tests.replication.scene import Scene
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send


def test_time_and_messages_are_in_proportion_between_two_seconds() -> None:
    times = LogTimes()
    for second, end, messages in ((10, 0, 0), (11, 1000, 10), (12, 1000, 10), (20, 1000, 10), (21, 3000, 20)):
        times.note(end, second, messages)
    assert times.lag(3000, 3000, 25, 20) == Lag(0, 0, 0)
    assert times.lag(1000, 3000, 25, 20) == Lag(2000, 5000, 10)  # the log was idle until 20
    assert times.lag(2000, 3000, 25, 20) == Lag(1000, 4500, 5)
    assert times.lag(500, 3000, 25, 20).messages == 15
    assert times.lag(3000, 5000, 25, 40) == Lag(2000, 4000, 20)


def test_what_is_not_remembered_is_at_least_as_old_as_what_is() -> None:
    times = LogTimes(points_max=3)
    for second in range(10):
        times.note(second * 100, second, second)
    assert times.lag(0, 900, 9, 9) == Lag(900, 2000, 2)
    assert LogTimes().lag(0, 900, 9, 9) == Lag(900, 0, 0)


def test_a_log_that_was_cut_off_is_noted_again() -> None:
    times = LogTimes()
    for end in (100, 200, 300, 150):
        times.note(end, float(end))
    assert times.lag(120, 150, 151).bytes == 30
    assert times.lag(100, 150, 151) == Lag(50, 51_000, 0)


def connections(master: Master) -> list[dict[str, Any]]:
    found: Any = master.status()["haConnectionInfo"]
    return list(found)


def status(connection: ClientSocket) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
    return found


def test_a_slave_that_acknowledges_nothing_more(tmp_path: Path) -> None:
    with Master(tmp_path / "store") as master, master.connect() as client:
        with master.slave() as slave:
            slave.say(0)
            send(client, "T", bytes(100))
            slave.copy(master.written())
            eventually(lambda: connections(master)[0]["diff"] == 0)
            [first] = connections(master)
            assert (first["lagMs"], first["lagMessages"], first["inSync"]) == (0, 0, True)
            time.sleep(1.2)  # the master notes its log's end each second
            end = slave.end
            for _ in range(7):
                assert send(client, "T", bytes(100)).code == 0
            slave.copy(master.written(), acknowledge=False)
            time.sleep(1)
            [late] = connections(master)
            assert late["diff"] == master.written() - end
            assert late["lagMessages"] == 7
            assert 900 <= late["lagMs"] <= 3500
            reported = status(client)
            assert (reported["role"], reported["inSync"], reported["refused"]) == ("ASYNC_MASTER", 1, [])
            assert reported["slaves"][0]["lagMessages"] == 7
            slave.say(slave.end)
            eventually(lambda: connections(master)[0]["lagMs"] == 0)
        eventually(lambda: status(client)["slaves"] == [])


def test_the_metrics_of_a_master_name_slaves_by_host_and_by_port_only_if_they_must(tmp_path: Path) -> None:
    port = free_port()
    settings = words({"haListenPort": str(port), "mappedFileSizeCommitLog": "65536"})
    with watched(tmp_path / "store", *settings) as master, master.connect() as client:
        assert "firearrow_replica_in_sync" not in master.scrape()
        assert send(client, "T", b"body").code == 0
        with RawSlave((master.address[0], port)) as slave:
            slave.say(0)
            eventually(lambda: "firearrow_replica_lag_bytes" in master.scrape(), what="the slave")
            written = value(master.scrape(), "firearrow_log_end_bytes")
            assert value(master.scrape(), "firearrow_replica_lag_bytes", replica="127.0.0.1") == written
            assert value(master.scrape(), "firearrow_replica_in_sync", replica="127.0.0.1") == 0
            assert value(master.scrape(), "firearrow_replica_lag_messages", replica="127.0.0.1") == 1
            assert value(master.scrape(), "firearrow_replica_lag_seconds", replica="127.0.0.1") > 0
            with RawSlave((master.address[0], port)) as second:
                second.say(0)
                eventually(
                    lambda: len(master.scrape()["firearrow_replica_lag_bytes"][1]) == 2,
                    what="the second slave",
                )
                local = "{}:{}".format(*second.socket.getsockname())
                assert value(master.scrape(), "firearrow_replica_in_sync", replica=local) == 0
                assert value(master.scrape(), "firearrow_replicas_missing") == 0
            slave.copy(int(written))
            eventually(
                lambda: value(master.scrape(), "firearrow_replica_in_sync", replica="127.0.0.1") == 1,
                what="it is in sync",
            )
            eventually(
                (tmp_path / "store" / "config" / "expectedReplicas.json").exists, what="that it is kept"
            )
        # one that never had the whole log is not expected; the other one is
        eventually(
            lambda: value(master.scrape(), "firearrow_replicas_missing") == 1, what="that it is missing"
        )
        assert value(master.scrape(), "firearrow_replica_in_sync", replica="127.0.0.1") == 0
        assert value(master.scrape(), "firearrow_replicas_expected") == 1


def metric(broker: WatchedBroker, name: str) -> float:
    found = re.search(rf"^{name}{{.*}} (\S+)", broker.get("/metrics")[2].decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_a_slave_knows_how_far_it_is_behind(scene: Scene, tmp_path: Path) -> None:
    scene.fill(40)
    scene.limit = scene.end() // 2
    role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": scene.sender.address}
    settings = words(SIZES | role | {"haSendHeartbeatInterval": "200"})
    with (
        WatchedBroker(tmp_path / "slave", "--namesrv", name_server(scene.master), *settings) as slave,
        slave.connect() as connection,
    ):
        eventually(lambda: metric(slave, "firearrow_slave_lag_bytes") > 0, what="a lag")
        time.sleep(1)
        client = ha_client(connection)
        assert int(str(client["lagMs"])) >= 1000
        assert status(connection)["behindBytes"] == client["lagBytes"] >= scene._end - scene.limit
        assert metric(slave, "firearrow_slave_following") == 1
        assert metric(slave, "firearrow_slave_lag_seconds") >= 1
        scene.limit = None
        eventually(lambda: metric(slave, "firearrow_slave_lag_bytes") == 0, what="the end")
        assert ha_client(connection)["lagMs"] == 0
        scene.sender.close()
        scene.master.kill()
        eventually(lambda: metric(slave, "firearrow_slave_following") == 0, what="that it follows nothing")
