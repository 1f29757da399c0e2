"""QUERY_ASSIGNMENT over two brokers: the requested one gets the other from the name server."""

import json
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send, topic_ext

GROUP = "Sharers"


def join(connection: ClientSocket, client_id: str) -> None:
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [{"topic": "Shared", "subString": "*", "subVersion": 1}],
    }
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    assert connection.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0


def assigned(
    connection: ClientSocket, client_id: str, topic: str = "Shared"
) -> list[tuple[str, int, str]] | None:
    question = {
        "topic": topic,
        "consumerGroup": GROUP,
        "clientId": client_id,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
    answer = connection.ask(RequestCode.QUERY_ASSIGNMENT, body=json.dumps(question).encode())
    assert answer.code == 0, answer.remark
    found = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    queues = [(one["messageQueue"], one["mode"]) for one in found]
    return [(queue["brokerName"], queue["queueId"], mode) for queue, mode in queues]


def test_two_brokers_share_the_queues_of_both(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a", "--set", "brokerName=a") as first:
        assert first.name_server is not None
        host, port = first.name_server
        outside = "--namesrv-listen", "off", "--set", f"namesrvAddr={host}:{port}"
        with (
            BrokerProcess(tmp_path / "b", "--set", "brokerName=b", *outside) as second,
            first.connect() as to_first,
            second.connect() as to_second,
        ):
            for connection in (to_first, to_second):
                created = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Shared", 2))
                assert created.code == 0
            wait_for_route(first, "Shared", 2)
            for connection in (to_first, to_second):
                join(connection, "c1")
                assert assigned(connection, "c1") == [
                    ("a", 0, "PULL"),
                    ("a", 1, "PULL"),
                    ("b", 0, "PULL"),
                    ("b", 1, "PULL"),
                ]
            assert assigned(to_second, "c1", "Unknown") is None


def wait_for_route(broker: BrokerProcess, topic: str, brokers: int) -> None:
    """The other broker's registration takes a moment."""
    with broker.connect_name_server() as naming:

        def known() -> bool:
            answer = naming.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return answer.code == 0 and len(json.loads(answer.body)["queueDatas"]) == brokers

        eventually(known, what=f"{topic} is on {brokers} brokers")


def test_the_mode_of_a_group_survives_a_kill(tmp_path: Path) -> None:
    """The response is sent after the file was saved."""
    wanted = {"topic": "Shared", "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
    with BrokerProcess(tmp_path / "store", "--set", "brokerName=a") as broker, broker.connect() as client:
        send(client, "Shared", b"x")
        assert client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(wanted).encode()).code == 0
        broker.kill()
    with BrokerProcess(tmp_path / "store", "--set", "brokerName=a") as broker, broker.connect() as client:
        join(client, "c1")
        assert assigned(client, "c1") == [("a", -1, "POP")]
