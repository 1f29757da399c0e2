"""The brokers that recordings are replayed against: with the topics, groups, messages and users that they had."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode
from tests.grpc import recordings
from tests.grpc.comparison import Answer
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import create_group, create_topic
from tests.support.requests import send_ext

SETTINGS = {
    "brokerName": "broker-a",
    "timerPrecisionMs": "100",
    "reviveInterval": "100",
    "recallMessageEnable": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "enablePropertyFilter": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
ROOT = ("rocketmq", "12345678")
WITH_USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}
NEED_USERS = ("probe-auth", "java-acl-ok", "java-acl-refused")
USERS = {"users": [{"username": "app", "password": "secret88", "userType": "Normal"}]}
RIGHTS = [
    {"resource": name, "actions": ["Pub", "Sub"], "decision": "Allow"} for name in ("Topic:gz*", "Group:gz*")
]
ACLS = {"acls": [{"subject": "User:app", "policies": [{"policyType": "Custom", "entries": RIGHTS}]}]}
PROBED = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
"""Topics of the probe by the ends of their names; each has a group."""
PROBE, PROBE_OF_USERS = "gz-160226-probe", ("gz-a", "orders")


def arguments(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def add_users(store: Path) -> None:
    """Before the broker starts. Recorded signatures are of these passwords."""
    folder = store / "config"
    folder.mkdir(parents=True)
    for name, content in (("users", USERS), ("acls", ACLS)):
        (folder / f"{name}.json").touch(0o600)
        (folder / f"{name}.json").write_text(json.dumps(content))


def prepare(connection: ClientSocket, name: str) -> None:
    """Create the topics and groups of a recording as it shows them."""
    if name == "probe-refusals":
        for end, kind in PROBED.items():
            create_topic(connection, f"{PROBE}-{end}", kind)
            create_group(connection, f"{PROBE}-{end}-g", consumeMessageOrderly=end == "fifo")
        return
    if name == "probe-auth":
        for topic in PROBE_OF_USERS:
            create_topic(connection, topic)
        create_group(connection, "gz-g")
        return
    topics: dict[int, str] = {}
    for event in recordings.events(name):
        message = event.message
        if message is None:
            continue
        if event.rpc == "QueryRoute" and event.is_request:
            topics[event.call] = message["topic"]["name"]
        elif event.rpc == "QueryRoute" and message["status"]["code"] == "OK":
            _create_topic(connection, topics[event.call], message["message_queues"])
        elif event.rpc == "Telemetry" and event.is_answer and "subscription" in message.get("settings", {}):
            subscription = message["settings"]["subscription"]
            create_group(
                connection,
                subscription["group"]["name"],
                consumeMessageOrderly=subscription.get("fifo", False),
                retryMaxTimes=message["settings"]["backoff_policy"]["max_attempts"] - 1,
                attributes=_bound(message["settings"]),
            )


def _bound(settings: Answer) -> dict[str, str]:
    """The attributes of the group of a lite consumer."""
    if settings.get("client_type") != "LITE_PUSH_CONSUMER":
        return {}
    return {"+lite.bind.topic": settings["subscription"]["subscriptions"][0]["topic"]["name"]}


def _create_topic(connection: ClientSocket, topic: str, queues: list[Answer]) -> None:
    """Dead letters create theirs."""
    if not topic.startswith(name_rules.DLQ_PREFIX):
        create_topic(connection, topic, queues[0]["accept_message_types"][0], len(queues))


def sent_by_remoting(name: str) -> Iterator[Answer]:
    """Messages that were received and that no client of gRPC sent."""
    sent: set[str] = set()
    for event in recordings.events(name):
        message = event.message or {}
        if event.rpc == "SendMessage" and event.is_request:
            sent |= {each["system_properties"].get("message_id", "") for each in message.get("messages", ())}
        elif event.rpc == "ReceiveMessage" and event.is_answer and "message" in message:
            found = message["message"]
            if found["system_properties"]["message_id"] not in sent:
                sent.add(found["system_properties"]["message_id"])
                yield found


def send_by_remoting(connection: ClientSocket, message: Answer, shift: int) -> None:
    """As a producer of remoting did. `shift`: seconds that it is later."""
    own: dict[str, Any] = message["system_properties"]
    properties = {
        "UNIQ_KEY": own["message_id"],
        "TAGS": own["tag"],
        "KEYS": " ".join(own["keys"]),
        "WAIT": "true",
        **message["user_properties"],
    }
    text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
    born_ms = milliseconds(own["born_timestamp"]) + shift * 1000
    ext = send_ext(message["topic"]["name"], own.get("queue_id", 0), i=text, g=str(born_ms))
    body = recordings.body_of(message)
    assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0


def milliseconds(time: str) -> int:
    found = Timestamp()
    found.FromJsonString(time)
    return found.ToMilliseconds()
