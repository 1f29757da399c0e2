"""The route of the broker's own name server for who may not have it: the broker by the address that was reached
already, so that the broker says why it refuses. Apache's clients show of a refused route only that there is none."""

from pathlib import Path

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, ask_ok, create_user, grant, options
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send_ext, topic_ext
from tests.support.startup import constants

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NO_PERMISSION, NOT_EXIST = 16, 17
OTHERS = (("", ""), (ROOT, "wrong"), ("nobody", "wrong"), ("app", "secret88"))
"""Without a name, with a wrong password, unknown, and without a right."""


SHORT_DELAYS = constants({"firearrow.broker.auth.failed_logins:DELAY_MAX_S": 0.1})
"""Its many failed logins wait a little."""


def shape(answer: RemotingCommand) -> tuple[int, list[str], list[dict[str, int]]]:
    """Code, addresses, and what is known of queues."""
    route = orjson.loads(answer.body)
    addresses = [at for broker in route["brokerDatas"] for at in broker["brokerAddrs"].values()]
    names = {broker["brokerName"] for broker in route["brokerDatas"]}
    assert {queue.pop("brokerName") for queue in route["queueDatas"]} == names
    return answer.code, addresses, route["queueDatas"]


def test_it_leads_to_the_broker_and_shows_nothing_of_topics(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "s", *options("brokerName=mine"), environment=SHORT_DELAYS) as broker:
        assert broker.name_server is not None
        with SignedSocket(broker.address) as root:
            ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T", 4))
            create_user(root, "app", "secret88")
        with SignedSocket(
            broker.name_server
        ) as root:  # another broker of the name server, whose address is nowhere shown
            register(root)
            known = shape(root.ask(ROUTE, {"topic": "T"}))
            assert known[2][0]["readQueueNums"] == 4
        at = ["{}:{}".format(*broker.address)]
        for user, password in OTHERS:
            with SignedSocket(broker.name_server, user, password) as client:
                seen = [shape(client.ask(ROUTE, {"topic": topic})) for topic in ("T", "Elsewhere", "Unknown")]
                assert (
                    seen
                    == [(0, at, [{"perm": 6, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}])]
                    * 3
                )
                assert client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == NO_PERMISSION
            with SignedSocket(broker.address, user, password) as client:
                answer = client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")
                assert answer.code == NO_PERMISSION
                assert answer.remark
                assert client.ask(ROUTE, {"topic": "T"}).code != 0
        with SignedSocket(broker.address) as root:
            grant(root, "app", "Topic:T", "Pub")
        with SignedSocket(broker.name_server, "app", "secret88") as client:
            assert shape(client.ask(ROUTE, {"topic": "T"})) == known
        assert "check signature failed." in broker.log.read_text()
        assert broker.stop() == 0


def register(root: SignedSocket) -> None:
    """A broker that is elsewhere, with a topic of its own."""
    topics = {
        name: {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
        for name in ("Elsewhere", "More")
    }
    body = {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": topics,
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1},
        },
        "filterServerList": [],
    }
    ext = {
        "brokerName": "other",
        "brokerAddr": "192.0.2.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
    ext |= {"haServerAddr": "192.0.2.1:10912", "compressed": "false", "bodyCrc32": "0"}
    answer = root.ask(RequestCode.REGISTER_BROKER, ext, orjson.dumps(body))
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize("password", ["wrong", ROOT_PASSWORD])
def test_who_has_to_wait_for_others_keeps_the_route_that_it_has(tmp_path: Path, password: str) -> None:
    """While too many failed logins of an address wait, a client with the right password must not take one queue for
    the whole topic."""
    with BrokerProcess(tmp_path / "s", *options()) as broker:
        assert broker.name_server is not None
        guessers = [SignedSocket(broker.name_server, f"u{number}", "wrong") for number in range(40)]
        try:
            for guesser in guessers:
                guesser.send_request(ROUTE, {"topic": "T"})
            with SignedSocket(broker.name_server, ROOT, password) as client:
                answer = client.ask(ROUTE, {"topic": "T"})
                assert answer.code in (NO_PERMISSION, NOT_EXIST), answer.remark
        finally:
            for guesser in guessers:
                guesser.close()
        broker.kill()
