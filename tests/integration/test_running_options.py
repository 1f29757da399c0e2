"""Options that change while the broker runs: those that Apache's broker reads anew at each use."""

import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import properties
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, send

TOPIC_NOT_EXIST, GROUP_NOT_EXIST = 17, 26


def change(connection: ClientSocket, **options: object) -> None:
    body = "".join(f"{key}={value}\n" for key, value in options.items()).encode()
    answer = connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    assert answer.code == 0, answer.remark


def test_topics_and_groups_are_created_only_while_that_is_allowed(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "autoCreateTopicEnable=false") as broker,
        broker.connect() as connection,
    ):
        assert send(connection, "Before", b"x").code == TOPIC_NOT_EXIST
        change(connection, autoCreateTopicEnable="true")
        assert send(connection, "During", b"x").code == 0
        change(connection, autoCreateTopicEnable="false", autoCreateSubscriptionGroup="false")
        assert send(connection, "After", b"x").code == TOPIC_NOT_EXIST
        assert send(connection, "During", b"x").code == 0
        assert pull(connection, "During").code == GROUP_NOT_EXIST
        change(connection, autoCreateSubscriptionGroup="true")
        assert pull(connection, "During").code == 0


def test_answers_carry_the_new_region_and_tables_come_in_pages(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        for region in ("DefaultRegion", "elsewhere"):
            change(connection, regionId=region)
            assert send(connection, "Regions", b"x").ext["MSG_REGION"] == region
        page = {"topicSeq": "0", "maxTopicNum": "1000", "dataVersion": ""}
        sizes = []
        for size in (1, 2):
            change(connection, splitMetadataSize=size)
            body = connection.ask(RequestCode.GET_ALL_TOPIC_CONFIG, page).body
            sizes.append(body.count(b'"topicName"'))
        assert sizes == [1, 2]
        change(connection, enableSplitMetadata="false")
        assert connection.ask(RequestCode.GET_ALL_TOPIC_CONFIG, page).body.count(b'"topicName"') > 5


def test_idle_connections_follow_their_limit(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "serverChannelMaxIdleTimeSeconds=3600") as broker,
        broker.connect() as idle,
        broker.connect() as connection,
    ):
        assert send(idle, "Idle", b"x").code == 0
        change(connection, serverChannelMaxIdleTimeSeconds=1)
        begun = time.monotonic()
        idle.socket.settimeout(10)
        assert idle.socket.recv(1) == b""
        assert time.monotonic() - begun < 9


def test_the_name_server_describes_itself(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect_name_server() as connection:
        namesrv_config = properties.parse(connection.ask(RequestCode.GET_NAMESRV_CONFIG).body)
        assert broker.name_server is not None
        assert (namesrv_config["bindAddress"], namesrv_config["listenPort"]) == (
            broker.name_server[0],
            str(broker.name_server[1]),
        )
        assert namesrv_config["kvConfigPath"] == str(tmp_path / "store" / "config" / "kvConfig.json")
        with broker.connect() as to_broker:
            ours = properties.parse(to_broker.ask(RequestCode.GET_BROKER_CONFIG).body)
        assert ours["listenPort"] == str(broker.address[1])
