"""Parsers of what peers send: frames, headers, batches, properties, bodies, expressions, receipts."""

import functools
import struct
import zlib

from firearrow._native.protocol import fastjson
from firearrow._native.sql92.errors import InvalidExpression
from firearrow._native.store.log.batch import items_of
from firearrow._native.store.log.received_message import decode_messages
from firearrow._native.store.log.results import PutRefused
from firearrow._native.wire.command import FieldError, RemotingCommand, WireError
from firearrow.broker.base import properties
from firearrow.broker.base.config import apply
from firearrow.broker.base.message import properties_of, properties_text
from firearrow.broker.base.options import Options
from firearrow.broker.net import proxy_protocol
from firearrow.broker.pop.checkpoints import AckMessage, PopCheckPoint
from firearrow.broker.pop.receipt_handles import ReceiptHandle, receipt_handle_text
from firearrow.broker.tables import attributes
from firearrow.broker.tables.registration import register_body
from firearrow.broker.tables.subscription_filter import CompiledFilter
from firearrow.broker.tables.subscriptions import HeartbeatData, Subscription
from firearrow.broker.timers.recall_handle import RecallHandle
from firearrow.client.base.compression import BodyUnreadable, open_body
from tests.golden import whole_frames
from tests.hostile.fuzz import Target
from tests.unit.broker.test_proxy_protocol import TAKEN as PROXY_HEADERS

SEED_BYTES_MAX = 8192


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@functools.cache
def recorded_frames() -> list[bytes]:
    """What Apache's clients and brokers sent, the first of each code, direction and form."""
    first: dict[tuple[object, ...], bytes] = {}
    for _, recorded, raw in whole_frames():
        if len(raw) <= SEED_BYTES_MAX:
            line = recorded.line
            first.setdefault((line["code"], line["dir"], line.get("serializer"), line.get("answers")), raw)
    return list(first.values())


def read_frame(data: bytes) -> None:
    """Every field of a command is read as every type, and the command is encoded again."""
    command = RemotingCommand.decode(data)
    for name in command.ext:
        command.text(name)
        for read in (command.integer, command.boolean_or):
            try:
                read(name, 32) if read is command.integer else read(name, False)
            except FieldError:
                continue
    RemotingCommand.decode(command.encode())


def bodies_of(code: int) -> list[bytes]:
    found = {}
    for raw in all_recorded_frames():
        command = RemotingCommand.decode(raw)
        if command.code == code and not command.is_response and command.body:
            found[len(command.body)] = command.body
    return list(found.values())[:20]


@functools.cache
def all_recorded_frames() -> list[bytes]:
    return [raw for _, _, raw in whole_frames() if len(raw) <= 64 * SEED_BYTES_MAX]


def batches() -> list[bytes]:
    return bodies_of(320)


def item(body: bytes, text: bytes = b"") -> bytes:
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(text)) + text
    return struct.pack(">i", len(rest) + 4) + rest


def read_heartbeat(data: bytes) -> None:
    for beat in HeartbeatData.read(data).consumers:
        for subscription in beat.subscriptions():
            subscription.to_object()


def read_properties(data: bytes) -> None:
    pairs = properties_of(text_of(data))
    assert properties_of(properties_text(pairs).decode()) == pairs


def pulled() -> list[bytes]:
    found = []
    for raw in all_recorded_frames():
        command = RemotingCommand.decode(raw)
        if command.is_response and command.code == 0 and command.body[4:8] == b"\xda\xa3\x20\xa7":
            found.append(command.body)
    return sorted(found, key=len)[:: max(len(found) // 20, 1)][:20]


def read_pulled(data: bytes) -> None:
    for message in decode_messages(data, "b", open_body):
        str(message.properties), message.message_id, message.born_host, message.keys, message.tags
        try:
            _ = message.body
        except BodyUnreadable:  # a malformed compressed body: reported when it is read
            continue


def read_options(data: bytes) -> None:
    apply(Options(), properties.parse(text_of(data)))


def read_receipt(data: bytes) -> None:
    receipt = ReceiptHandle.of(text_of(data))
    assert min(receipt.start_offset, receipt.pop_ms) >= 0


def read_expression(data: bytes) -> None:
    CompiledFilter(text_of(data)).matches({"a": "1", "b": "x", "TAGS": "t"})


EXPRESSIONS = (
    b"a > 1 AND b = 'x' OR NOT c IS NULL",
    b"a BETWEEN 1 AND 10 AND b IN ('x', 'y', 'z') AND c CONTAINS 'q' /* no */ AND d NOT STARTSWITH 'p'",
    b"((((a >= -1.5e3))) = TRUE) AND 10L < b -- end\n",
)
CHECK_POINT = (
    b'{"bn":"b","c":"G","d":[0,1,2],"it":60000,"n":3,"pt":1700000000000,"q":0,"ro":0,"so":5,"t":"T","v":0}'
)
ACKNOWLEDGEMENT = b'{"ao":5,"aol":[5,6],"bn":"b","c":"G","pt":1700000000000,"q":0,"so":5,"t":"T"}'
REGISTRATION = (
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":4,'
    b'"writeQueueNums":4}},"dataVersion":{"counter":1,"timestamp":5,"stateVersion":0}},"filterServerList":["h:1"]}'
)


def packed() -> bytes:
    """The form of large registrations: parts with lengths, deflated."""
    parts = (b'{"counter":1,"timestamp":5,"stateVersion":0}', b"T 4 4 6 SINGLE_TAG", b'["h:1"]')
    version, topic, filters = (struct.pack(">i", len(part)) + part for part in parts)
    return zlib.compress(version + struct.pack(">i", 1) + topic + filters)


def receipts() -> list[bytes]:
    return [receipt_handle_text(5, 1_700_000_000_000, 60_000, 3, "T", "b", 0, 7).encode()]


def recall_handles() -> list[bytes]:
    return [RecallHandle("T", "b", "1700000000000", "7F00").text().encode()]


def heartbeats() -> list[bytes]:
    return bodies_of(34)


WIRE = (
    Target("frame", recorded_frames, read_frame, (WireError, FieldError)),
    Target("batch", lambda: [*batches(), item(b"a") + item(b"b", b"k\x01v\x02")], items_of, (PutRefused,)),
    Target("pulled", pulled, read_pulled, (ValueError, BodyUnreadable)),
    Target("heartbeat", heartbeats, read_heartbeat),
    Target("json body", heartbeats, fastjson.loads_body),
    Target("properties", lambda: [b"KEYS\x01a b\x02TAGS\x01t\x02UNIQ_KEY\x017F00\x02"], read_properties),
    Target("expression", lambda: list(EXPRESSIONS), read_expression, (InvalidExpression,)),
    Target("tags", lambda: [b"a||b || c", b"*"], lambda data: Subscription.of_expression("T", text_of(data))),
    Target("receipt", receipts, read_receipt),
    Target("check point", lambda: [CHECK_POINT], PopCheckPoint.of),
    Target("acknowledgement", lambda: [ACKNOWLEDGEMENT], lambda data: AckMessage.of(data, "b")),
    Target("register body", lambda: [REGISTRATION], lambda data: register_body(data, 500, False)),
    Target("register packed", lambda: [packed()], lambda data: register_body(data, 500, True)),
    Target("attributes", lambda: [b"+message.type=NORMAL"], lambda data: attributes.parsed(text_of(data))),
    Target("options", lambda: [b"brokerName=b\n# no\nmaxMessageSize=1000\n"], read_options),
    Target("proxy header", lambda: [header for header, _ in PROXY_HEADERS], proxy_protocol.parse),
    Target("recall handle", recall_handles, lambda data: RecallHandle.parse(text_of(data))),
)
