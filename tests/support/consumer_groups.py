"""Consumer groups of a broker by the wire: made, with offsets, with members."""

import json

from firearrow._native.wire.codes import RequestCode
from tests.support.client_socket import ClientSocket


def make_group(connection: ClientSocket, group: str) -> None:
    body = json.dumps({"groupName": group}).encode()
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


def commit(connection: ClientSocket, group: str, topic: str, queue: int, offset: int) -> None:
    ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
    assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def heartbeat(connection: ClientSocket, group: str, *topics: str, model: str = "CLUSTERING") -> None:
    subscriptions = [
        {"topic": topic, "subString": "a || b", "tagsSet": ["a", "b"], "codeSet": [], "subVersion": 1}
        for topic in topics
    ]
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": "10.0.0.1@1", "consumerDataSet": [member], "producerDataSet": []}
    assert connection.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0
