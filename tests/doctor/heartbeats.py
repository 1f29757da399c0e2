"""Consumers that only send heartbeats, as clients of any language, version and subscription."""

import json
from collections.abc import Mapping

from firearrow._native.wire.codes import LanguageCode, RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.client_socket import ClientSocket

V5_5_0 = 513
FOREVER_MS = 1 << 42


def beat(
    connection: ClientSocket,
    group: str,
    client_id: str,
    subscriptions: Mapping[str, str],
    *,
    model: str = "CLUSTERING",
    version: int = V5_5_0,
    language: LanguageCode = LanguageCode.JAVA,
) -> None:
    """Become or stay a member of the group. `subscriptions`: topic → expression."""
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [
            {"topic": topic, "subString": expression, "subVersion": 1}
            for topic, expression in subscriptions.items()
        ],
        "unitMode": False,
    }
    body = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
    command = RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
    command.language, command.version = language, version
    assert connection.answer_to(connection.send(command)).code == 0


def lock(connection: ClientSocket, group: str, client_id: str, topic: str, broker: str) -> None:
    """Lock queue 0 for the client."""
    queue = {"topic": topic, "brokerName": broker, "queueId": 0}
    body = {"consumerGroup": group, "clientId": client_id, "mqSet": [queue]}
    answer = connection.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
    assert answer.code == 0
    assert json.loads(answer.body)["lockOKMQSet"]
