"""Bodies of REGISTER_BROKER: every form, and every way in which one can be malformed."""

import json
import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.tables import registration, routes
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.registration import QueueData
from tests.support.examples import examples
from tests.support.name_server_harness import NameServerHarness, config, register_body

VERSION = b'{"counter":7,"stateVersion":1,"timestamp":5}'


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed(*topics: bytes, count: int | None = None, tail: bytes = b"\0\0\0\0") -> bytes:
    inner = part(VERSION) + struct.pack(">i", len(topics) if count is None else count)
    return zlib.compress(inner + b"".join(map(part, topics)) + part(b"[]") + tail)


def refused(body: bytes, *, says: str, **fields: Any) -> None:  # noqa: ANN401
    harness = NameServerHarness()
    answer = harness.register(body=body, **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert says in answer.remark
    assert not harness.routes.brokers


def test_the_compressed_form() -> None:
    body = compressed(b'T1 16 8 6 SINGLE_TAG {"+message.type":"NORMAL"}', b"T2 1 1 4 MULTI_TAG")
    read = registration.register_body(body, 513, True)
    assert read.version == DataVersion(7, 1, 5)
    assert read.topics == {"T1": QueueData(16, 8, 6), "T2": QueueData(1, 1, 4)}
    assert read.filter_servers == []
    before_5_0 = compressed(b"T1 16 8 6 SINGLE_TAG", b"T2 1 1 4 MULTI_TAG", tail=b"")
    assert registration.register_body(before_5_0, 409, True) == read
    harness = NameServerHarness()
    assert harness.register(body=body, compressed="true").code == 0
    assert harness.route("T2") is not None


def test_the_old_form_is_the_wrapper_alone() -> None:
    wrapper = json.loads(register_body(config("T1"), config("T2")))["topicConfigSerializeWrapper"]
    harness = NameServerHarness()
    assert harness.register(body=json.dumps(wrapper).encode(), version=36).code == 0
    assert harness.route("T1") is not None
    refused(json.dumps(wrapper).encode(), says="topicConfigSerializeWrapper", version=37)


def test_no_body_is_a_registration_without_topics() -> None:
    harness = NameServerHarness()
    assert harness.register(body=b"").code == 0
    assert harness.routes.version("C", "10.0.0.1:10911") == DataVersion(0, 0, 0)


def test_numbers_may_be_strings_and_missing_ones_have_defaults() -> None:
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"perm":"4"},"B":{}}}}'
    read = registration.register_body(body, 513, False)
    assert read.topics == {"A": QueueData(16, 16, 4), "B": QueueData(16, 16, 6)}


def test_the_checksum_is_over_the_bytes_sent() -> None:
    body = compressed(b"T1 1 1 6 SINGLE_TAG", b"T2 1 1 6 SINGLE_TAG")
    harness = NameServerHarness()
    wrong = harness.register(body=body, compressed="true", bodyCrc32=1)
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert harness.register(body=body, compressed="true", bodyCrc32=0).code == 0
    assert harness.register(body=body, compressed="true", bodyCrc32=None).code == 0


@pytest.mark.parametrize("field", ["brokerName", "clusterName", "brokerAddr", "haServerAddr", "brokerId"])
def test_a_missing_field_is_named(field: str) -> None:
    refused(register_body(config("T1"), config("T2")), says=field, **{field: None})


def test_fields_are_bounded() -> None:
    body = register_body(config("T1"), config("T2"))
    refused(body, says="brokerName", brokerName="x" * 256)
    refused(body, says="clusterName", clusterName="a\nb")
    refused(body, says="brokerId", brokerId=-1)
    refused(body, says="bodyCrc32", bodyCrc32="x")
    assert NameServerHarness().register(brokerName="x" * 255).code == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "JSON"),
        (b"[]", "body"),
        (b"{}", "topicConfigSerializeWrapper"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}', "topicConfigTable"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":3}}}', "topicConfigTable"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"perm":16}}}}', "perm"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"readQueueNums":-1}}}}', "readQueueNums"),
        (
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"writeQueueNums":65537}}}}',
            "writeQueueNums",
        ),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"topicName":7}}}}', "topicName"),
        (b'{"topicConfigSerializeWrapper":{"dataVersion":[]}}', "dataVersion"),
        (b'{"filterServerList":{},"topicConfigSerializeWrapper":{}}', "filterServerList"),
    ],
)
def test_a_wrong_member_is_named(body: bytes, says: str) -> None:
    refused(body, says=says)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"no zlib", "zlib"),
        (compressed(b"A 1 1 6 S")[:-5], "truncated"),
        (compressed(b"A 1 1 6"), "five words"),
        (compressed(b"A 1 1 99 S"), "perm"),
        (compressed(b"A x 1 6 S"), "readQueueNums"),
        (compressed(b"A 1 1 6 S", count=-1), "number of topics"),
        (compressed(b"A 1 1 6 S", count=registration.TOPICS_MAX + 1), "number of topics"),
        (compressed(b"A 1 1 6 S", count=9), "five words"),
        (zlib.compress(struct.pack(">i", 1 << 30)), "length of dataVersion"),
        (zlib.compress(struct.pack(">i", -4) + b"xxxx"), "length of dataVersion"),
        (zlib.compress(part(VERSION)), "number of topics"),
    ],
)
def test_a_wrong_part_is_named(body: bytes, says: str) -> None:
    refused(body, says=says, compressed="true")


def test_inflation_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = compressed(b"A 1 1 6 S", b"B 1 1 6 S")
    size = len(zlib.decompress(body))
    monkeypatch.setattr(registration, "INFLATED_BYTES_MAX", size)
    assert NameServerHarness().register(body=body, compressed="true").code == 0
    monkeypatch.setattr(registration, "INFLATED_BYTES_MAX", size - 1)
    refused(body, says="inflates to more", compressed="true")


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = register_body(config("T1"), config("T2"), filters=["f:1"] * registration.FILTER_SERVERS_MAX)
    assert NameServerHarness().register(body=body).code == 0
    over = register_body(config("T1"), filters=["f:1"] * (registration.FILTER_SERVERS_MAX + 1))
    refused(over, says="filterServerList")
    monkeypatch.setattr(registration, "TOPICS_MAX", 2)
    assert NameServerHarness().register(body=body).code == 0
    refused(register_body(config("T1"), config("T2"), config("T3")), says="topicConfigTable")


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BROKERS_MAX", 2)
    monkeypatch.setattr(routes, "IDS_MAX", 2)
    monkeypatch.setattr(routes, "TOPICS_MAX", 3)
    monkeypatch.setattr(routes, "ROUTES_MAX", 5)
    harness = NameServerHarness()

    def code(name: str, broker_id: int, n: int, *topics: str) -> int:
        body = register_body(*(config(topic) for topic in topics), counter=n)
        address = f"10.0.0.{n}:1"
        return harness.register(broker=name, broker_id=broker_id, address=address, body=body).code

    assert code("a", 0, 1, "T1", "T2", "T3") == 0
    assert code("a", 1, 2, "T1", "T2") == 0
    assert code("a", 2, 3, "T1", "T2") == ResponseCode.SYSTEM_ERROR
    assert code("b", 0, 4, "T1", "T4") == ResponseCode.SYSTEM_ERROR
    assert code("b", 0, 4, "T1", "T2") == 0
    assert code("b", 0, 4, "T1", "T2", "T3") == ResponseCode.SYSTEM_ERROR
    assert code("c", 0, 5) == ResponseCode.SYSTEM_ERROR
    assert set(harness.routes.brokers) == {"a", "b"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ("perm", "readQueueNums", "topicName", "topicSysFlag", "x")
WRAPPERS = st.fixed_dictionaries(
    {},
    optional={
        "dataVersion": JSON_VALUES | st.fixed_dictionaries({"counter": JSON_VALUES}),
        "topicConfigTable": st.dictionaries(
            st.text(max_size=4),
            st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES, max_size=5) | JSON_VALUES,
        ),
    },
)


def answered(body: bytes, *, zipped: bool, version: int) -> None:
    """It is accepted or refused with our remark, and the table stays consistent."""
    harness = NameServerHarness()
    harness.register(broker="b", address="10.0.0.2:1")
    answer = harness.register(body=body, version=version, compressed="true" if zipped else "false")
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    assert answer.code == 0 or (answer.remark and "Error:" not in answer.remark)
    assert harness.route("T1") is not None
    for topic in list(harness.routes.topics):
        assert harness.route(topic) is not None


@examples(200)
@given(wrapper=WRAPPERS | JSON_VALUES, filters=JSON_VALUES, version=st.sampled_from((0, 36, 37, 513)))
def test_any_json_is_accepted_or_refused(wrapper: object, filters: object, version: int) -> None:
    document = {"filterServerList": filters, "topicConfigSerializeWrapper": wrapper}
    body = json.dumps(document if version >= 37 else wrapper).encode()
    answered(body, zipped=False, version=version)


@examples(200)
@given(data=st.binary(max_size=80), version=st.sampled_from((0, 37, 513)))
def test_any_bytes_are_accepted_or_refused(data: bytes, version: int) -> None:
    answered(data, zipped=False, version=version)
    answered(data, zipped=True, version=version)
    answered(zlib.compress(data), zipped=True, version=version)


def test_a_good_body_cut_or_flipped_anywhere_is_accepted_or_refused() -> None:
    good = zlib.decompress(compressed(b"T1 16 16 6 SINGLE_TAG {}", b"T2 16 16 6 SINGLE_TAG"))
    flip = random.Random(7)
    for at in range(len(good)):
        answered(zlib.compress(good[:at]), zipped=True, version=513)
        bent = bytearray(good)
        bent[at] ^= 1 << flip.randrange(8)
        answered(zlib.compress(bytes(bent)), zipped=True, version=513)
