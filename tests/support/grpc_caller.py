"""GrpcCaller: calls of `apache.rocketmq.v2.MessagingService` by grpcio, as one client of a broker makes them."""

import hmac
import itertools
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import grpc

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.peer import Address
from firearrow.broker.grpc import messages
from tests.support.client_socket import ClientSocket

DATE = "20261129T180000Z"
STREAMS = ("ReceiveMessage", "PullMessage")
_numbers = itertools.count(1)


def signature(user: str, password: str, date: str = DATE) -> list[tuple[str, str]]:
    """The headers by which a client logs in."""
    digest = hmac.digest(password.encode(), date.encode(), "sha1").hex().upper()
    header = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return [("x-mq-date-time", date), ("authorization", header)]


class Telemetry:
    """The stream of one client: `send` and `receive` TelemetryCommands."""

    def __init__(self, call: Any, sent: "queue.Queue[Any]") -> None:  # noqa: ANN401
        self.call = call
        self._sent = sent

    def send(self, **command: Any) -> None:  # noqa: ANN401
        self._sent.put(messages.TelemetryCommand(**command))

    def receive(self) -> Any:  # noqa: ANN401
        return next(self.call)

    def end(self) -> None:
        self._sent.put(None)


class GrpcCaller:
    """`client_id` None: none is sent. `metadata`: further headers of each call."""

    def __init__(
        self,
        address: Address,
        client_id: str | None = "",
        metadata: list[tuple[str, str]] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.address = address
        self.client_id = f"test@{next(_numbers)}" if client_id == "" else client_id
        target = "{}:{}".format(*address)
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(target, options)
        else:
            self.channel = grpc.secure_channel(target, credentials, options)
        self._streams: list[Telemetry] = []
        own = [] if self.client_id is None else [("x-mq-client-id", self.client_id)]
        self.metadata = [*own, ("x-mq-language", "PYTHON"), *(metadata or [])]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.end()
        self.channel.close()

    def call(self, method: str, timeout: float = 10, **fields: Any) -> Any:  # noqa: ANN401
        """The answer; of a stream, all of them."""
        request, response = messages.method_classes(method)
        kind = self.channel.unary_stream if method in STREAMS else self.channel.unary_unary
        stub = kind(
            f"/{messages.SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        found = stub(request(**fields), metadata=self.metadata, timeout=timeout)
        return list(found) if method in STREAMS else found

    def code(self, method: str, **fields: Any) -> tuple[str, str]:  # noqa: ANN401
        """The name of the code and the text of an answer's status."""
        answer = self.call(method, **fields)
        status = (answer[0] if method in STREAMS else answer).status
        return next(name for name, code in messages.CODES.items() if code == status.code), status.message

    def telemetry(self) -> Telemetry:
        sent: queue.Queue[Any] = queue.Queue()
        stub = self.channel.stream_stream(
            f"/{messages.SERVICE}/Telemetry",
            request_serializer=messages.TelemetryCommand.SerializeToString,
            response_deserializer=messages.TelemetryCommand.FromString,
        )
        stream = Telemetry(stub(iter(sent.get, None), metadata=self.metadata), sent)
        self._streams.append(stream)
        return stream

    # ---- what a client does ----

    def produce(self, *topics: str) -> Telemetry:
        """Register as a producer."""
        stream = self.telemetry()
        publishing = {"topics": [{"name": topic} for topic in topics]}
        stream.send(settings={"client_type": "PRODUCER", "publishing": publishing})
        assert stream.receive().status.code == messages.CODES["OK"]
        return stream

    def consume(self, group: str, *topics: str, kind: str = "SIMPLE_CONSUMER") -> Telemetry:
        """Register as a consumer of whole topics."""
        stream = self.telemetry()
        entries = [
            {"topic": {"name": topic}, "expression": {"type": "TAG", "expression": "*"}} for topic in topics
        ]
        subscription = {"group": {"name": group}, "subscriptions": entries}
        stream.send(settings={"client_type": kind, "subscription": subscription})
        assert stream.receive().status.code == messages.CODES["OK"]
        return stream

    def send(self, topic: str, *bodies: bytes, kind: str = "NORMAL", **system: Any) -> Any:  # noqa: ANN401
        """The answer to one request with these bodies."""
        return self.call("SendMessage", messages=[message(topic, body, kind, **system) for body in bodies])

    def receive(
        self,
        group: str,
        topic: str,
        count: int = 32,
        timeout: float = 10,
        **fields: Any,  # noqa: ANN401
    ) -> list[Any]:
        """The messages of one receive."""
        asked = receive_fields(group, topic, count) | fields
        return [
            each.message for each in self.call("ReceiveMessage", timeout, **asked) if each.HasField("message")
        ]

    def ack(self, group: str, topic: str, *received: Any) -> Any:  # noqa: ANN401
        entries = [
            {
                "message_id": each.system_properties.message_id,
                "receipt_handle": each.system_properties.receipt_handle,
            }
            for each in received
        ]
        return self.call("AckMessage", group={"name": group}, topic={"name": topic}, entries=entries)


def message(topic: str, body: bytes, kind: str = "NORMAL", **system: Any) -> dict[str, Any]:  # noqa: ANN401
    own = {"message_id": f"ID{next(_numbers):08d}", "message_type": kind, "body_encoding": "IDENTITY"}
    user = system.pop("user", {})
    return {
        "topic": {"name": topic},
        "body": body,
        "user_properties": user,
        "system_properties": own | system,
    }


def receive_fields(group: str, topic: str, count: int = 32) -> dict[str, Any]:
    return {
        "group": {"name": group},
        "message_queue": {"topic": {"name": topic}, "id": -1},
        "filter_expression": {"type": "TAG", "expression": "*"},
        "batch_size": count,
        "invisible_duration": {"seconds": 30},
        "long_polling_timeout": {"seconds": 5},
    }


def create_topic(connection: ClientSocket, topic: str, kind: str = "NORMAL", queues: int = 4) -> None:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={kind}",
    }
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def create_group(connection: ClientSocket, group: str, **settings: object) -> None:
    body = json.dumps({"groupName": group} | settings).encode()
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


def until_received(caller: GrpcCaller, group: str, topic: str, count: int) -> list[Any]:
    """So many messages, acknowledged."""
    found: list[Any] = []
    for _ in attempts():
        received = caller.receive(group, topic)
        if received:
            caller.ack(group, topic, *received)
        found += received
        if len(found) >= count:
            break
    return found


def attempts() -> Iterator[int]:
    yield from range(10)


def renewed(connection: ClientSocket) -> int:
    """How many messages the broker renews."""
    body = connection.ask(RequestCode.GET_STATUS).body
    return int(json.loads(body)["counts"]["renewedMessages"])


def saved(store: Path) -> list[int]:
    """The queue offsets of the messages that a store's file has."""
    file = store / "config" / "receiptHandles.json"
    if not file.exists():
        return []
    rows = [row for client in json.loads(file.read_text())["clients"] for row in client["handles"]]
    return sorted(int(row[2].split(" ")[7]) for row in rows)
