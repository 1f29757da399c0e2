"""The fast path follows changes of options, topics and groups while the broker runs."""

import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import fastjson
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, send, topic_ext

NO_PERMISSION, TOPIC_NOT_EXIST = 16, 17


def test_sends_to_an_ordered_topic_follow_the_broker_permission(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        for topic, order in (("Ordered", "true"), ("Free", "false")):
            assert (
                connection.ask(
                    RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1) | {"order": order}
                ).code
                == 0
            )
        for permission, wanted in ((6, 0), (4, NO_PERMISSION), (6, 0)):
            update = f"brokerPermission={permission}".encode()
            assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=update).code == 0
            assert send(connection, "Ordered", b"x").code == wanted
            assert send(connection, "Free", b"x").code == 0


def test_pulls_follow_the_topic_the_group_and_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as connection:
        assert send(connection, "Read", b"x").code == 0

        def code() -> int:
            return pull(connection, "Read").code

        def ask(request: int, ext: dict[str, str], body: bytes = b"") -> None:
            assert connection.ask(request, ext, body).code == 0

        assert (code(), code()) == (0, 0)
        for perm, wanted in (("2", NO_PERMISSION), ("6", 0)):
            ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Read", 4) | {"perm": perm})
            assert code() == wanted
        for enabled, wanted in ((b"false", NO_PERMISSION), (b"true", 0)):
            group = b'{"groupName":"CG","consumeEnable":' + enabled + b"}"
            ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
            assert code() == wanted
        for permission, wanted in ((b"2", NO_PERMISSION), (b"6", 0)):
            ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=" + permission)
            assert code() == wanted
        ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Read"})
        assert code() == TOPIC_NOT_EXIST


def test_routes_follow_the_broker_permission_at_once(tmp_path: Path) -> None:
    """Clients that learn their routes anew stop sending, or pulling, as with Apache's broker."""
    with (
        BrokerProcess(tmp_path / "a") as names,
        BrokerProcess(tmp_path / "b", "--set", "brokerName=b", "--namesrv", _address(names)) as broker,
        broker.connect() as connection,
        broker.connect_name_server() as own,
        names.connect_name_server() as outside,
    ):
        assert send(connection, "Routed", b"x").code == 0
        for permission in (4, 2, 6):
            update = f"brokerPermission={permission}".encode()
            assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=update).code == 0
            assert _permission(own) == permission
            until = time.monotonic() + 10
            while _permission(outside) != permission:
                assert time.monotonic() < until
                time.sleep(0.02)


def _address(broker: BrokerProcess) -> str:
    assert broker.name_server is not None
    return f"{broker.name_server[0]}:{broker.name_server[1]}"


def _permission(name_server: ClientSocket) -> int:
    """What the route of `Routed` permits at broker `b`; 0 if there is none."""
    answer = name_server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Routed"})
    queues = fastjson.loads(answer.body)["queueDatas"] if answer.code == 0 else []
    return next((int(queue["perm"]) for queue in queues if queue["brokerName"] == "b"), 0)
