"""Parsers of HTTP, names, ids and properties in a filter; and a broker that gets requests over sockets: every code with
one of its fields, or its body, in the place of the input."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import message_ids, properties
from firearrow.broker.handlers.lite import Entry as LiteEntry
from firearrow.broker.http import messages
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.subscription_filter import CompiledFilter
from tests.auth.every_code import CASES, Case, encoded
from tests.hostile.fuzz import Target
from tests.hostile.targets_wire import text_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import create_group, create_topic
from tests.support.requests import send_ext, topic_ext

HTTP = b"GET /metrics?a=b&c=d HTTP/1.1\r\nHost: a:1\r\nAccept-Encoding: gzip;q=0.0, deflate \t\r\nConnection: close"
FILTERS = [
    CompiledFilter(text)
    for text in (
        " OR ".join(["a > 1.5"] * 300),
        " OR ".join(["a CONTAINS 'b0'"] * 300),
        " OR ".join(["a = 7"] * 300),
        "a NOT IN ('x', 'y') AND a ENDSWITH 'x' AND NOT a STARTSWITH 'y' OR a BETWEEN 1.5 AND 2.5",
    )
]
MESSAGE_ID = b"7F000001000027110000000000000007"
UNKNOWN = 29_999
"""A code that no broker serves: its answer shows when the loop is free again."""
PORTS_CLOSED = (ConnectionError, TimeoutError)


def read_http(data: bytes) -> None:
    request = messages.parse(data)
    request.accepts("accept-encoding", "gzip")
    assert request.keeps_alive in (True, False)


def read_property(data: bytes) -> None:
    """A message's property a, by filters that read it hundreds of times."""
    values = {"a": text_of(data)}
    for each in FILTERS:
        each.matches(values)


def read_name(data: bytes) -> None:
    for fault in (name_rules.topic_fault, name_rules.own_topic_fault, name_rules.group_fault):
        fault(text_of(data))


def read_lite_subscription(data: bytes) -> None:
    entries = json_fields.members(loads_body(data), "body").get("subscriptionSet")
    for value in json_fields.items(entries, "subscriptionSet"):
        LiteEntry.of(value)


SUBSCRIBED = {
    "subscriptionSet": [
        {
            "action": "PARTIAL_ADD",
            "clientId": "c",
            "group": "LG",
            "topic": "LT",
            "liteTopicSet": ["l", "m"],
            "offsetOption": {"type": "TAIL_N", "value": 1},
            "version": 1,
        }
    ]
}
OF_LITE = {"topic": "LT", "consumerGroup": "LG", "liteTopic": "l", "queueId": "0", "offset": "0"}
LITE_CASES: list[tuple[int, Case]] = [
    (RequestCode.SEND_MESSAGE_V2, Case(send_ext("LT", i="__LITE_TOPIC\x01l\x02"), (), "x")),
    (RequestCode.LITE_SUBSCRIPTION_CTL, Case({}, (), SUBSCRIBED)),
    (
        RequestCode.POP_LITE_MESSAGE,
        Case(OF_LITE | {"clientId": "c", "maxMsgNum": "2", "invisibleTime": "1000", "pollTime": "0"}, ()),
    ),
    (RequestCode.ACK_MESSAGE, Case(OF_LITE | {"extraInfo": "0 1 60000 999 0 b 0 0"}, ())),
    (
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        Case(OF_LITE | {"extraInfo": "0 1 60000 999 0 b 0 0", "invisibleTime": "5"}, ()),
    ),
    (
        RequestCode.PULL_MESSAGE,
        Case(OF_LITE | {"queueOffset": "0", "maxMsgNums": "2", "sysFlag": "4", "subscription": "*"}, ()),
    ),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, Case(OF_LITE | {"timestamp": "5"}, ())),
    (RequestCode.GET_BROKER_LITE_INFO, Case({}, ())),
    (RequestCode.GET_PARENT_TOPIC_INFO, Case({"topic": "LT"}, ())),
    (RequestCode.GET_LITE_TOPIC_INFO, Case({"parentTopic": "LT", "liteTopic": "l"}, ())),
    (
        RequestCode.GET_LITE_CLIENT_INFO,
        Case({"parentTopic": "LT", "group": "LG", "clientId": "c", "maxCount": "5"}, ()),
    ),
    (RequestCode.GET_LITE_GROUP_INFO, Case({"group": "LG", "liteTopic": "", "topK": "5"}, ())),
    (RequestCode.TRIGGER_LITE_DISPATCH, Case({"group": "LG", "clientId": "c"}, ())),
]
"""Requests about lite topics, of a topic that has some."""

REQUESTS = (
    Target("http", lambda: [HTTP], read_http, (messages.BadRequest,)),
    Target("filtered property", lambda: [b"1", b"-1.5e3", b"0x1.8p3f", b"some text", b"0b0"], read_property),
    Target("name", lambda: [b"%RETRY%group_1", b"topic-1"], read_name),
    Target(
        "message id",
        lambda: [b"7F000001000027110000000000000007"],
        lambda data: message_ids.offset_of(text_of(data)),
    ),
    Target("lite subscription", lambda: [encoded(SUBSCRIBED)], read_lite_subscription),
    Target("broker.conf", lambda: [b"a=b\\\n c\n# \xe7\n", b"\\u0041:b"], properties.parse),
)

CODE_MAX = 0x7FFFFFFF
NOT_SENT = frozenset((215, 226, 227, 100_001))
"""Codes that would change what the other requests need."""


LMQS = "--set", "enableLmq=true", "--set", "enableMultiDispatch=true"


@contextmanager
def served(draw: random.Random) -> Iterator["Served"]:
    with TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "store", *LMQS) as broker:
        yield Served(broker, draw)


class Served:
    """A broker, and targets that send it what they get. `target()` draws one."""

    def __init__(self, broker: BrokerProcess, draw: random.Random) -> None:
        self._broker, self._draw = broker, draw
        self._pid = broker.process.pid
        self._connection: ClientSocket | None = None
        self._cases = [
            (code, case)
            for code, cases in sorted(CASES.items())
            for case in cases
            if code not in NOT_SENT and code <= 0x7FFFFFFF
        ]
        self._cases += LITE_CASES
        for topic in ("T", "T2"):
            self._connected().ask(17, topic_ext(topic))
        create_topic(self._connected(), "LT", "LITE")
        create_group(self._connected(), "LG", attributes={"+lite.bind.topic": "LT"})

    def loop_s(self) -> float:
        """CPU seconds of the broker's loop thread."""
        return int(Path(f"/proc/{self._pid}/task/{self._pid}/schedstat").read_text().split()[0]) / 1e9

    def target(self) -> Target:
        code, case = self._draw.choice(self._cases)
        body = encoded(case.body)
        places = [*case.ext, *(["body"] * 3 if body else ["body"]), "another field"]
        place = self._draw.choice(places)
        seed = body if place == "body" else case.ext.get(place, "x").encode()
        serializer = self._draw.randint(0, 1)

        def read(data: bytes) -> None:
            ext = dict(case.ext)
            if place != "body":
                ext[place] = text_of(data)
            self._send(
                RemotingCommand(int(code), ext, data if place == "body" else body, serializer=serializer)
            )

        return Target(f"request {int(code)}, {place}", lambda: [seed or b"x"], read, PORTS_CLOSED)

    def _send(self, command: RemotingCommand) -> None:
        """Returns when the broker has served it, or refused it by closing the connection."""
        connection = self._connected()
        try:
            connection.send(command)
            connection.ask(UNKNOWN)
        except PORTS_CLOSED:
            connection.close()
            self._connection = None
            raise

    def _connected(self) -> ClientSocket:
        if self._connection is None:
            self._connection = self._broker.connect()
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
