"""17, 18, 215, 21, 351, 305, 202, and the cleaning codes: topics as administrators see them."""

import json

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker import fastjson
from firearrow.broker.fastjson import MessageQueue
from firearrow.broker.handlers.topics import LIST_MAX
from firearrow.broker.tables.topics import TopicConfig
from tests.broker.handlers.room import Room

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


def make(room: Room, **more: object) -> RemotingCommand:
    return room.ask(17, MADE | more)


def test_a_topic_is_made_changed_and_shown() -> None:
    room = Room()
    answer = make(room)
    assert (answer.code, answer.remark, answer.body) == (0, "not set any response code", b"")
    assert make(room, writeQueueNums=2, order="true", attributes="+message.type=FIFO").code == 0
    assert make(room, writeQueueNums=2, order="true").code == 0
    assert room.topics.version.counter == 2
    assert room.ask(351, {"topic": "T", "lo": "true"}).body == (
        b'{"attributes":{"message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":2}'
    )
    unknown = room.ask(351, {"topic": "U"})
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
    room = Room()
    before = room.topics.to_json()
    answer = make(room, **more)
    assert (answer.code, answer.remark) == (code, remark)
    assert room.topics.to_json() == before


@pytest.mark.parametrize("field", ["topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType"])
def test_missing_fields_are_named(field: str) -> None:
    answer = Room().ask(17, {key: value for key, value in MADE.items() if key != field})
    assert answer.code == 1
    assert field in str(answer.remark)


def test_options_open_what_is_closed() -> None:
    assert make(Room(mixed_message_type=True), attributes="+message.type=MIXED").code == 0
    assert make(Room(check_system_topics=False), topic="TBW102").code == 0


def test_a_list_is_made_as_a_whole_or_not_at_all() -> None:
    room = Room()
    configs = [TopicConfig(f"T{n}", 1, 1).to_object() for n in range(1000)]
    assert room.ask(18, body=json.dumps({"topicConfigList": configs}).encode()).code == 0
    assert "T999" in room.topics
    assert room.topics.version.counter == 1
    wrong = [*configs, TopicConfig("U").to_object(), TopicConfig("V", 5000).to_object()]
    assert room.ask(18, body=json.dumps({"topicConfigList": wrong}).encode()).code == 29
    assert "U" not in room.topics
    many = json.dumps({"topicConfigList": [{"topicName": f"N{n}"} for n in range(LIST_MAX + 1)]})
    answer = room.ask(18, body=many.encode())
    assert (answer.code, answer.remark) == (1, "topicConfigList of 5001 topics, at most 5000")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"topicConfigList":1}', b'{"topicConfigList":[{}]}', b'{"topicConfigList":[1]}']
)
def test_wrong_lists_are_refused(body: bytes) -> None:
    answer = Room().ask(18, body=body)
    assert answer.code == 1
    assert answer.remark


def test_a_deleted_topic_takes_offsets_queues_and_pop_retries_with_it() -> None:
    room = Room()
    make(room)
    make(room, topic="%RETRY%G_T")
    make(room, topic="%RETRY%G")
    room.offsets.commit("G", "T", 0, 1)
    room.stats.put("T", 1, 1)
    answer = room.ask(215, {"topic": "T"})
    assert (answer.code, answer.remark) == (0, None)
    assert [name for name in ("T", "%RETRY%G_T", "%RETRY%G") if name in room.topics] == ["%RETRY%G"]
    assert room.offsets.query("G", "T", 0) == -1
    assert room.fake.dropped == ["T", "%RETRY%G_T"]
    assert room.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert room.ask(215, {"topic": "T"}).code == 0
    assert room.ask(215, {"topic": " "}).remark == "The specified topic is blank."
    assert room.ask(215, {"topic": "SELF_TEST_TOPIC"}).code == 29


def test_all_topics_come_whole_or_in_pages() -> None:
    room = Room()
    whole = room.ask(21)
    body = fastjson.loads(whole.body)
    assert whole.ext == {"totalTopicNum": str(len(room.topics))}
    assert sorted(body) == [
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    ]
    seen: dict[str, object] = {}
    version, sequence = "", 0
    while sequence < len(room.topics):
        ext: dict[str, object] = {"topicSeq": sequence, "dataVersion": version, "maxTopicNum": 5}
        part = fastjson.loads(room.ask(21, ext).body)
        assert len(part["topicConfigTable"]) <= 5
        assert not seen.keys() & part["topicConfigTable"].keys()
        seen |= part["topicConfigTable"]
        version, sequence = json.dumps(part["dataVersion"]), sequence + 5
    assert seen == body["topicConfigTable"]
    make(room)
    restarted = fastjson.loads(room.ask(21, {"topicSeq": 5, "dataVersion": version, "maxTopicNum": 5}).body)
    assert min(restarted["topicConfigTable"]) == min(room.topics)


def test_what_a_topic_holds() -> None:
    room = Room()
    make(room, readQueueNums=1, writeQueueNums=2)
    room.fake.times["T", 1] = [100, 200]
    room.fake.begins["T", 1] = 1
    assert room.ask(202, {"topic": "T"}).body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":0,'
        b'"minOffset":0},{"brokerName":"broker-a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":200,"maxOffset":2,'
        b'"minOffset":1}},"topicPutTps":0.0}'
    )
    unknown = room.ask(202, {"topic": "U"})
    assert (unknown.code, unknown.remark) == (17, "topic[U] not exist")
    wide = fastjson.loads(room.ask(202, {"topic": "BenchmarkTest"}).body)["offsetTable"]
    assert len(wide) == 1024
    assert MessageQueue("broker-a", 1023, "BenchmarkTest") in wide


def test_cleaning_keeps_what_is_in_use() -> None:
    room = Room()
    make(room)
    room.fake.times = {
        ("T", 0): [1],
        ("gone", 0): [1],
        ("gone", 1): [1],
        ("%LMQ%x", 0): [1],
        ("rmq_sys_x", 0): [1],
    }
    assert room.ask(316).code == 0
    assert room.fake.dropped == ["gone"]
    assert room.ask(306).code == 0
    assert room.ask(329).code == 0
    assert room.asked == ["clean queues", "delete expired"]


def test_a_table_that_fits_no_frame_is_refused_but_comes_in_pages() -> None:
    room = Room()
    room.topics.update_all([TopicConfig(f"{n:0127}") for n in range(50_000)])
    answer = room.ask(21)
    assert answer.code == 1
    assert "ask for pages" in str(answer.remark)
    assert len(fastjson.loads(room.ask(21, {"topicSeq": 0}).body)["topicConfigTable"]) == 2000
