"""The fast path follows changes of options, topics and groups while the broker runs."""

import time
from pathlib import Path

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.integration.pops import pop
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull, pull_ext, send, send_ext, topic_ext
from tests.support.stores import item

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


def test_compaction_topics_with_batch_queues_are_not_used(tmp_path: Path) -> None:
    """Apache's broker creates such topics, and loses all but the first message of a batch when it compacts."""
    store = tmp_path / "store"
    with BrokerProcess(store) as broker, broker.connect() as connection:
        for topic in ("Plain", "Compacted"):
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1)).code == 0
        broker.stop()
    topics = store / "config" / "topics.json"
    table = fastjson.loads(topics.read_bytes())
    both = {"cleanup.policy": "COMPACTION", "queue.type": "BatchCQ"}
    table["topicConfigTable"]["Compacted"]["attributes"] = both
    topics.write_bytes(fastjson.dumps(table))
    with BrokerProcess(store) as broker, broker.connect() as connection:
        for topic, wanted in (("Compacted", NO_PERMISSION), ("Plain", 0)):
            for _ in range(2):  # a topic's second send takes the fast path
                answers = [send(connection, topic, b"x"), pull(connection, topic)]
                assert [answer.code for answer in answers] == [wanted, wanted]
                assert all("compaction topic" in str(answer.remark) for answer in answers) == (wanted != 0)
            assert pop(connection, topic).code == wanted
        broker.stop()
    assert fastjson.loads(topics.read_bytes())["topicConfigTable"]["Compacted"]["attributes"] == both


def test_routes_follow_the_broker_permission_at_once(tmp_path: Path) -> None:
    """Clients that fetch the new routes stop sending or pulling, as with Apache's broker."""
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
            eventually(lambda wanted=permission: _permission(outside) == wanted, 10)


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_send_to_an_ordered_topic_needs_the_permission(tmp_path: Path, way: str) -> None:
    """As in Apache's broker, sends to other topics are still taken: clients learn from the routes to stop."""
    body = b"x"
    kinds: dict[str, tuple[int, dict[str, str], bytes]] = {
        "plain": (RequestCode.SEND_MESSAGE_V2, {}, body),
        "delayed": (RequestCode.SEND_MESSAGE_V2, {"i": "DELAY\x011\x02"}, body),
        "timer": (RequestCode.SEND_MESSAGE_V2, {"i": "TIMER_DELAY_SEC\x0130\x02"}, body),
        "half": (RequestCode.SEND_MESSAGE_V2, {"i": "TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "f": "4"}, body),
        "batch": (RequestCode.SEND_BATCH_MESSAGE, {"m": "true"}, item(body)),
        "reply": (RequestCode.SEND_REPLY_MESSAGE_V2, {"i": "REPLY_TO_CLIENT\x01nobody\x02"}, body),
    }
    with BrokerProcess(tmp_path / "store", way=WAYS[way]) as broker, broker.connect() as connection:
        for topic, order in (("Ordered", "true"), ("Free", "false")):
            ext = topic_ext(topic, 1) | {"order": order}
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
        assert pull(connection, "Free").code != 0  # creates the group
        _set_permission(connection, 4)
        for kind, (code, more, content) in kinds.items():
            refused = connection.ask(code, send_ext("Ordered", **more), content)
            assert (refused.code, refused.remark) == (
                NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden",
            ), kind  # fmt: skip
            taken = connection.ask(code, send_ext("Free", **more), content)
            assert taken.code == (1 if kind == "reply" else 0), (kind, taken.remark)  # its client is not here
        back = {"offset": "0", "group": "CG", "delayLevel": "1", "originMsgId": "", "originTopic": "Free"}
        assert connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == NO_PERMISSION
        _set_permission(connection, 6)
        for kind, (code, more, content) in kinds.items():
            assert connection.ask(code, send_ext("Ordered", **more), content).code != NO_PERMISSION, kind
        assert connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 0


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_read_needs_the_permission(tmp_path: Path, way: str) -> None:
    """A pull that is held finds out when a message comes, as in Apache's broker."""
    with (
        BrokerProcess(tmp_path / "store", way=WAYS[way]) as broker,
        broker.connect() as connection,
        broker.connect() as held,
    ):
        assert send(connection, "Read", b"x").code == 0
        assert pull(connection, "Read").code == 0
        wait = {"sysFlag": str(SUSPEND | SUBSCRIPTION), "suspendTimeoutMillis": "20000"}
        held.send_request(RequestCode.PULL_MESSAGE, pull_ext("Read", 1, **wait))
        time.sleep(0.1)
        _set_permission(connection, 2)
        assert send(connection, "Read", b"y").code == 0
        assert held.receive().code == NO_PERMISSION
        assert pull(connection, "Read").code == NO_PERMISSION
        assert pop(connection, "Read").code == NO_PERMISSION
        peek = {"consumerGroup": "CG", "topic": "Read", "queueId": "0", "maxMsgNums": "1"}
        notice = {"consumerGroup": "CG", "topic": "Read", "queueId": "0", "pollTime": "0", "bornTime": "0"}
        assert connection.ask(RequestCode.PEEK_MESSAGE, peek).code == NO_PERMISSION
        assert connection.ask(RequestCode.NOTIFICATION, notice).code == NO_PERMISSION
        assert connection.ask(RequestCode.POLLING_INFO, peek).code == NO_PERMISSION
        _set_permission(connection, 6)
        assert (pull(connection, "Read").code, pop(connection, "Read").code) == (0, 0)


def _set_permission(connection: ClientSocket, permission: int) -> None:
    update = f"brokerPermission={permission}".encode()
    assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=update).code == 0


def _address(broker: BrokerProcess) -> str:
    assert broker.name_server is not None
    return f"{broker.name_server[0]}:{broker.name_server[1]}"


def _permission(name_server: ClientSocket) -> int:
    """What the route of `Routed` permits at broker `b`; 0 if there is none."""
    answer = name_server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Routed"})
    queues = fastjson.loads(answer.body)["queueDatas"] if answer.code == 0 else []
    return next((int(queue["perm"]) for queue in queues if queue["brokerName"] == "b"), 0)
