"""A broadcasting client that moves from the broker to a proxy continues at its offset."""

import json
from pathlib import Path

from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.broker_process import BrokerProcess
from tests.support.requests import pull, send


def test_a_client_that_moves_to_a_proxy(tmp_path: Path) -> None:
    consumer = {
        "groupName": "CG",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "BROADCASTING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [{"topic": "News", "subString": "*", "subVersion": 1}],
    }
    body = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": []}
    with (
        BrokerProcess(tmp_path / "store") as broker,
        broker.connect() as client,
        broker.connect() as proxy,
    ):
        for n in range(5):
            send(client, "News", b"%d" % n)
        assert client.ask(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0
        assert pull(client, "News", 3).code == 0
        moved = {"requestSource": "1", "proxyFrowardClientId": "c1"}
        answer = pull(proxy, "News", 0, 0, **moved)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("3", "5")
        assert pull(proxy, "News", 3, 0, **moved).code == 0
        stranger = pull(proxy, "News", -1, requestSource="1", proxyFrowardClientId="c2")
        assert (stranger.code, stranger.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        assert pull(client, "News", 0).ext["nextBeginOffset"] == "3"
