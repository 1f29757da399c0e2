"""Each refusal of Apache's proxy, by the calls that were recorded with it: code and text, but for named differences."""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from firearrow.broker.grpc import messages
from tests.grpc import recordings
from tests.grpc.recordings import Event
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import create_group, create_topic

TYPES = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION"}
PREFIX = re.compile(r"gz-\d+-probe")
ANY = ""

DIFFERENCES: dict[str, list[tuple[str, str, str]]] = {
    "unknown topics have one code and text": [
        ("QueryRoute", "TOPIC_NOT_FOUND", "TOPIC_NOT_FOUND"),
        ("SendMessage", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "TOPIC_NOT_FOUND"),
        ("ReceiveMessage", "INTERNAL_SERVER_ERROR", "TOPIC_NOT_FOUND"),
    ],
    "a receive before any settings has a code of its own": [
        ("ReceiveMessage", "INTERNAL_SERVER_ERROR", "UNRECOGNIZED_CLIENT_TYPE"),
    ],
    "a filter that cannot be parsed has a code of its own": [
        ("ReceiveMessage", "INTERNAL_SERVER_ERROR", "ILLEGAL_FILTER_EXPRESSION"),
    ],
    "an acknowledgement of nothing is a bad request": [
        ("AckMessage", "INTERNAL_SERVER_ERROR", "BAD_REQUEST")
    ],
    "what is no receipt handle has one code": [
        ("AckMessage", "INTERNAL_SERVER_ERROR", "INVALID_RECEIPT_HANDLE"),
        ("ChangeInvisibleDuration", "INTERNAL_SERVER_ERROR", "INVALID_RECEIPT_HANDLE"),
        ("ForwardMessageToDeadLetterQueue", "INTERNAL_SERVER_ERROR", "INVALID_RECEIPT_HANDLE"),
    ],
    "a transaction is known by its id": [
        ("EndTransaction", "INTERNAL_SERVER_ERROR", "INVALID_TRANSACTION_ID"),
        ("EndTransaction", "OK", "INVALID_TRANSACTION_ID"),
    ],
    "digests are checked": [("SendMessage", "OK", "MESSAGE_CORRUPTED")],
    "there are no lite topics": [
        ("SyncLiteSubscription", "ILLEGAL_TOPIC", "NOT_IMPLEMENTED"),
        ("SyncLiteSubscription", "ILLEGAL_LITE_TOPIC", "NOT_IMPLEMENTED"),
        ("SendMessage", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "ILLEGAL_LITE_TOPIC"),
    ],
}
SERVED_HERE = {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"}
"""UNIMPLEMENTED at Apache's."""
HOUR_MS = 3_600_000
PULL_CONSUMERS = "type: PULL_CONSUMER"
"""Served here as well."""


def _message_id(answer: dict[str, Any]) -> str | None:
    return answer.get("message", {}).get("system_properties", {}).get("message_id")  # type: ignore[no-any-return]


def _without_ids(answer: dict[str, Any]) -> dict[str, Any]:
    """A transaction's id states its place as well, and each message of a batch has an entry."""
    if "entries" in answer:
        answer["entries"] = [{"status": entry.get("status")} for entry in answer["entries"][:1]]
    return answer


def is_named(rpc: str, expected: str, actual: str) -> bool:
    return any((rpc, expected, actual) in each for each in DIFFERENCES.values())


class Probe:
    """Replays the recording's calls one after the other; handles of what is received replace the recorded ones."""

    def __init__(self, broker: BrokerProcess) -> None:
        options = [("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel("{}:{}".format(*broker.address), options)
        self.handles: dict[str, tuple[str, str]] = {}
        """Of a message: the recorded one and ours."""
        self.recalls: dict[str, str] = {}
        self.differences: list[str] = []

    def replay(self, call: list[Event]) -> None:
        first, rpc = call[0], call[0].rpc
        if rpc in SERVED_HERE:
            return
        path = f"/{messages.SERVICE}/{rpc}"
        metadata = [
            item for item in (first.meta or {}).items() if item[0].startswith(("x-mq", "authorization"))
        ]
        requests = [event.message for event in call if event.is_request and event.message is not None]
        answers = [event.message for event in call if not event.is_request and event.message is not None]
        status = next((event.status for event in call if event.status is not None), None)
        if rpc == "NoSuchThing" or (requests and "hex" in requests[0]):
            return self.raw(path, metadata)
        request, response = messages.method_classes(rpc)
        sent = [self.renewed(recordings.parsed(each, request)) for each in requests]
        stub = self.channel.stream_stream(
            path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        timeout = first.deadline if rpc == "ReceiveMessage" else 10
        running = stub(iter(sent), metadata=metadata, timeout=timeout)
        received, ended = [], ("OK", "")
        try:
            received = [recordings.to_dict(each) for each in running]
        except grpc.RpcError as error:
            ended = error.code().name, error.details()
        for expected, actual in zip(answers, received, strict=False):
            self.note(expected, actual)
            self.compare(rpc, expected, actual)
        if status is not None and PULL_CONSUMERS in status[1]:
            assert received[0]["status"]["code"] == "OK"
            return None
        if status is not None and not answers and ended != status:
            self.differences.append(f"{rpc}: expected {status}, not {ended}, {received}")
        if (not answers) != (not received):
            self.differences.append(f"{rpc} {requests}: expected {answers}, not {received}")
        return None

    def raw(self, path: str, metadata: list[tuple[str, str]]) -> None:
        stub = self.channel.unary_unary(path)
        with pytest.raises(grpc.RpcError) as refused:
            stub(b"\xff\xff", metadata=metadata, timeout=10)
        assert refused.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL)

    def renewed(self, request: Any) -> Any:  # noqa: ANN401
        """With times of today, and handles of this broker."""
        name = request.DESCRIPTOR.name
        if name == "AckMessageRequest":
            for entry in request.entries:
                entry.receipt_handle = self.handle(entry.message_id, entry.receipt_handle)
        elif name in ("ChangeInvisibleDurationRequest", "ForwardMessageToDeadLetterQueueRequest"):
            request.receipt_handle = self.handle(request.message_id, request.receipt_handle)
        elif name == "RecallMessageRequest":
            request.recall_handle = self.recalls.get(request.recall_handle, request.recall_handle)
        elif name == "SendMessageRequest":
            for message in request.messages:
                own = message.system_properties
                if own.HasField("delivery_timestamp"):
                    ahead = own.delivery_timestamp.seconds - own.born_timestamp.seconds
                    own.delivery_timestamp.seconds = int(time.time()) + ahead
                own.born_timestamp.seconds = int(time.time())
        return request

    def handle(self, message_id: str, recorded: str) -> str:
        """That of the message, as far as the recorded one is one: made too short, or old, in the same way."""
        before, own = (each.split(" ") for each in self.handles.get(message_id, ("", "")))
        words = recorded.split(" ")
        if len(words) < 8 or len(own) < 9:
            return recorded
        older = int(words[1]) - int(before[1])
        if older < -HOUR_MS // 2:
            own[1] = str(int(own[1]) + older)
        return " ".join(own[: len(words)] if len(words) < 9 else own)

    def note(self, expected: dict[str, Any], actual: dict[str, Any]) -> None:
        """Handles of this broker, for those that are recorded."""
        if "message" in expected and "message" in actual:
            there, here = (each["message"]["system_properties"] for each in (expected, actual))
            if there["message_id"] == here["message_id"]:
                self.handles[here["message_id"]] = there["receipt_handle"], here["receipt_handle"]
        for there, here in zip(expected.get("entries", ()), actual.get("entries", ()), strict=False):
            if "recall_handle" in there and "recall_handle" in here:
                self.recalls[there["recall_handle"]] = here["recall_handle"]

    def compare(self, rpc: str, expected: dict[str, Any], actual: dict[str, Any]) -> None:
        if _message_id(expected) != _message_id(actual):
            return  # which of several messages comes first is open
        wanted, found = (_without_ids(recordings.comparable(each)) for each in (expected, actual))
        if wanted == found:
            return
        codes = [each.get("status", {}).get("code", "") for each in (wanted, found)]
        if is_named(rpc, *codes) or (rpc, *codes) == ("AckMessage", "MULTIPLE_RESULTS", "MULTIPLE_RESULTS"):
            return
        self.differences.append(f"{rpc}: expected {wanted}, not {found}")


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    settings = ("brokerName=broker-a", "recallMessageEnable=true", "enablePropertyFilter=true")
    with BrokerProcess(
        tmp_path / "store", *(word for each in settings for word in ("--set", each))
    ) as broker:
        topic = PREFIX.search(base64.b64encode(b"").decode() or _prefix())
        assert topic is not None
        with broker.connect() as connection:
            for name, kind in TYPES.items():
                create_topic(connection, f"{topic[0]}-{name}", kind)
                create_group(connection, f"{topic[0]}-{name}-g", consumeMessageOrderly=name == "fifo")
        probe = Probe(broker)
        yield probe
        probe.channel.close()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def _prefix() -> str:
    return next(str(event.message) for event in recordings.events("probe-refusals") if event.message)


def calls(name: str) -> list[list[Event]]:
    found: dict[int, list[Event]] = {}
    for event in recordings.events(name):
        found.setdefault(event.call, []).append(event)
    return list(found.values())


USERS = {"users": [{"username": "app", "password": "secret88", "userType": "Normal"}]}
RIGHTS = [
    {"resource": name, "actions": ["Pub", "Sub"], "decision": "Allow"} for name in ("Topic:gz*", "Group:gz*")
]
ACLS = {"acls": [{"subject": "User:app", "policies": [{"policyType": "Custom", "entries": RIGHTS}]}]}
MALFORMED = "create authentication context error."
"""A signature that is not hexadecimal; here, it is wrong."""


def test_who_may_not_is_refused_as_by_apache(tmp_path: Path) -> None:
    """The recorded signatures count: they are of the same password."""
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    for name, content in (("users", USERS), ("acls", ACLS)):
        (folder / f"{name}.json").touch(0o600)
        (folder / f"{name}.json").write_text(json.dumps(content))
    first = 'initAuthenticationUser={"username":"rocketmq","password":"12345678"}'
    settings = ("brokerName=broker-a", "authenticationEnabled=true", "authorizationEnabled=true", first)
    with BrokerProcess(
        tmp_path / "store", *(word for each in settings for word in ("--set", each))
    ) as broker:
        with ClientSocket(broker.address, keys=("rocketmq", "12345678")) as connection:
            for topic in ("gz-a", "orders"):
                create_topic(connection, topic)
            create_group(connection, "gz-g")
        probe = Probe(broker)
        for call in calls("probe-auth"):
            probe.replay(call)
        probe.channel.close()
        assert [each for each in probe.differences if MALFORMED not in each] == []
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def test_every_refusal_is_apaches(probe: Probe) -> None:
    for call in calls("probe-refusals"):
        probe.replay(call)
    assert not probe.differences, "\n".join(probe.differences)
