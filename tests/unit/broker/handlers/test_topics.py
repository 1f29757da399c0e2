"""17, 18, 215, 21, 351, 305, 202, and the cleaning codes: topics as administrators see them."""

import json

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.handlers.topics import LIST_MAX
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness

MADE: dict[str, object] = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
    "attributes": "",
    "force": "false",
}


def make(harness: HandlerHarness, **more: object) -> RemotingCommand:
    return harness.ask(17, MADE | more)


def test_a_topic_is_created_changed_and_returned() -> None:
    harness = HandlerHarness()
    answer = make(harness)
    assert (answer.code, answer.remark, answer.body) == (0, "not set any response code", b"")
    assert make(harness, writeQueueNums=2, order="true", attributes="+message.type=FIFO").code == 0
    assert make(harness, writeQueueNums=2, order="true").code == 0
    assert harness.topics.version.counter == 2
    assert harness.ask(351, {"topic": "T", "lo": "true"}).body == (
        b'{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":2}'
    )
    unknown = harness.ask(351, {"topic": "U"})
    assert (unknown.code, unknown.remark) == (17, "No topic in this broker. topic: U")


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": ""}, 29, "The specified topic is blank."),
        (
            {"topic": "a b"},
            29,
            "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({"topic": "a" * 128}, 29, f"The specified topic: {'a' * 128}, is longer than topic max length: 127"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "broker-a"}, 29, "The topic[broker-a] is conflict with system topic."),
        ({"readQueueNums": 4097}, 29, "readQueueNums must be 0 to 4096, not 4097"),
        ({"writeQueueNums": 2**31 - 1}, 29, "writeQueueNums must be 0 to 4096, not 2147483647"),
        ({"readQueueNums": -1}, 29, "readQueueNums must be 0 to 4096, not -1"),
        ({"perm": 16}, 29, "perm must be 0 to 15, not 16"),
        ({"topicFilterType": "NONE"}, 1, "topicFilterType = [NONE] value invalid"),
        ({"attributes": "+x=1"}, 1, "unsupported key: x"),
        ({"attributes": "x=1"}, 1, "add/alter attribute format is wrong: x"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
    ],
)
def test_wrong_topics_are_refused_by_the_field(more: dict[str, object], code: int, remark: str) -> None:
    harness = HandlerHarness()
    before = harness.topics.to_json()
    answer = make(harness, **more)
    assert (answer.code, answer.remark) == (code, remark)
    assert harness.topics.to_json() == before


@pytest.mark.parametrize("field", ["topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType"])
def test_missing_fields_are_named(field: str) -> None:
    answer = HandlerHarness().ask(17, {key: value for key, value in MADE.items() if key != field})
    assert answer.code == 1
    assert field in str(answer.remark)


def test_options_permit_what_is_forbidden() -> None:
    assert make(HandlerHarness(mixed_message_type=True), attributes="+message.type=MIXED").code == 0
    assert make(HandlerHarness(check_system_topics=False), topic="TBW102").code == 0


def test_a_list_is_created_as_a_whole_or_not_at_all() -> None:
    harness = HandlerHarness()
    configs = [TopicConfig(f"T{n}", 1, 1).to_object() for n in range(1000)]
    assert harness.ask(18, body=json.dumps({"topicConfigList": configs}).encode()).code == 0
    assert "T999" in harness.topics
    assert harness.topics.version.counter == 1
    wrong = [*configs, TopicConfig("U").to_object(), TopicConfig("V", 5000).to_object()]
    assert harness.ask(18, body=json.dumps({"topicConfigList": wrong}).encode()).code == 29
    assert "U" not in harness.topics
    many = json.dumps({"topicConfigList": [{"topicName": f"N{n}"} for n in range(LIST_MAX + 1)]})
    answer = harness.ask(18, body=many.encode())
    assert (answer.code, answer.remark) == (1, "topicConfigList of 5001 topics, at most 5000")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"topicConfigList":1}', b'{"topicConfigList":[{}]}', b'{"topicConfigList":[1]}']
)
def test_wrong_lists_are_refused(body: bytes) -> None:
    answer = HandlerHarness().ask(18, body=body)
    assert answer.code == 1
    assert answer.remark


def test_deleting_a_topic_deletes_its_offsets_queues_and_pop_retries() -> None:
    harness = HandlerHarness()
    make(harness)
    make(harness, topic="%RETRY%G_T")
    make(harness, topic="%RETRY%G")
    harness.offsets.commit("G", "T", 0, 1)
    harness.stats.put("T", 1, 1)
    answer = harness.ask(215, {"topic": "T"})
    assert (answer.code, answer.remark) == (0, None)
    assert [name for name in ("T", "%RETRY%G_T", "%RETRY%G") if name in harness.topics] == ["%RETRY%G"]
    assert harness.offsets.query("G", "T", 0) == -1
    assert harness.fake.dropped == ["T", "%RETRY%G_T"]
    assert harness.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert harness.ask(215, {"topic": "T"}).code == 0
    assert harness.ask(215, {"topic": " "}).remark == "The specified topic is blank."
    assert harness.ask(215, {"topic": "SELF_TEST_TOPIC"}).code == 29


def test_all_topics_are_returned_whole_or_in_pages() -> None:
    harness = HandlerHarness()
    whole = harness.ask(21)
    body = fastjson.loads(whole.body)
    assert whole.ext == {"totalTopicNum": str(len(harness.topics))}
    assert sorted(body) == [
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    ]
    seen: dict[str, object] = {}
    version, sequence = "", 0
    while sequence < len(harness.topics):
        ext: dict[str, object] = {"topicSeq": sequence, "dataVersion": version, "maxTopicNum": 5}
        part = fastjson.loads(harness.ask(21, ext).body)
        assert len(part["topicConfigTable"]) <= 5
        assert not seen.keys() & part["topicConfigTable"].keys()
        seen |= part["topicConfigTable"]
        version, sequence = json.dumps(part["dataVersion"]), sequence + 5
    assert seen == body["topicConfigTable"]
    make(harness)
    restarted = fastjson.loads(
        harness.ask(21, {"topicSeq": 5, "dataVersion": version, "maxTopicNum": 5}).body
    )
    assert min(restarted["topicConfigTable"]) == min(harness.topics)


def test_what_a_topic_holds() -> None:
    harness = HandlerHarness()
    make(harness, readQueueNums=1, writeQueueNums=2)
    harness.fake.times["T", 1] = [100, 200]
    harness.fake.begins["T", 1] = 1
    assert harness.ask(202, {"topic": "T"}).body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":0,'
        b'"minOffset":0},{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":200,"maxOffset":2,'
        b'"minOffset":1}},"topicPutTps":0.0}'
    )
    unknown = harness.ask(202, {"topic": "U"})
    assert (unknown.code, unknown.remark) == (17, "topic[U] not exist")
    wide = fastjson.loads(harness.ask(202, {"topic": "BenchmarkTest"}).body)["offsetTable"]
    assert len(wide) == 1024
    assert MessageQueue("BenchmarkTest", "broker-a", 1023) in wide


def test_cleaning_keeps_what_is_in_use() -> None:
    harness = HandlerHarness()
    make(harness)
    harness.fake.times = {
        ("T", 0): [1],
        ("gone", 0): [1],
        ("gone", 1): [1],
        ("%LMQ%x", 0): [1],
        ("rmq_sys_x", 0): [1],
    }
    assert harness.ask(316).code == 0
    assert harness.fake.dropped == ["gone"]
    assert harness.ask(306).code == 0
    assert harness.ask(329).code == 0
    assert harness.asked == ["clean queues", "delete expired"]


def test_a_table_larger_than_a_frame_is_refused_but_can_be_paged() -> None:
    harness = HandlerHarness()
    harness.topics.update_all([TopicConfig(f"{n:0127}") for n in range(50_000)])
    answer = harness.ask(21)
    assert answer.code == 1
    assert "ask for pages" in str(answer.remark)
    assert len(fastjson.loads(harness.ask(21, {"topicSeq": 0}).body)["topicConfigTable"]) == 2000
