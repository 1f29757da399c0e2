"""200, 225, 207, 201, 352, 353: subscription groups as administrators see them."""

import json

import pytest

from firearrow._native.protocol import fastjson
from firearrow.broker.handlers.groups import LIST_MAX
from firearrow.broker.tables.groups import GroupConfig
from tests.support.handler_harness import HandlerHarness


def body(name: str = "G", **more: object) -> bytes:
    return json.dumps(GroupConfig(name).to_object() | more).encode()


def test_a_group_is_created_changed_and_returned() -> None:
    harness = HandlerHarness()
    answer = harness.ask(200, body=body(retryMaxTimes=3, retryQueueNums=2))
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    assert harness.groups.get("G") == GroupConfig("G", retry_max_times=3, retry_queues=2)
    assert harness.ask(200, body=body()).code == 0
    assert harness.ask(352, {"group": "G"}).body == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":'
        b'{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,'
        b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_a_query_creates_a_group_if_its_name_is_valid() -> None:
    harness = HandlerHarness()
    assert harness.ask(352, {"group": "H"}).code == 0
    assert "H" in harness.groups
    answer = harness.ask(352, {"group": "no name"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")


@pytest.mark.parametrize(
    ("wrong", "code", "field"),
    [
        (b"", 1, "JSON"),
        (b"[]", 1, "group config"),
        (b"{}", 1, "groupName"),
        (body(""), 29, "blank"),
        (body("a b"), 29, "illegal"),
        (body("g" * 121), 29, "longer than group max length: 120"),
        (body(retryQueueNums=4097), 29, "retryQueueNums"),
        (body(retryQueueNums=-1), 1, "retryQueueNums"),
        (body(retryQueueNums="many"), 1, "retryQueueNums"),
        (body(consumeEnable=[]), 1, "consumeEnable"),
        (body(attributes={"+nothing": "1"}), 1, "nothing"),
        (body(attributes={"x": 1}), 1, "attributes"),
        (body(groupRetryPolicy=5), 1, "groupRetryPolicy"),
    ],
)
def test_wrong_groups_are_refused_by_the_field(wrong: bytes, code: int, field: str) -> None:
    harness = HandlerHarness()
    answer = harness.ask(200, body=wrong)
    assert answer.code == code
    assert field in str(answer.remark)
    assert len(harness.groups) == 8


def test_a_list_is_created_as_a_whole_or_not_at_all() -> None:
    harness = HandlerHarness()

    def listed(*names: str) -> bytes:
        return json.dumps({"groupConfigList": [{"groupName": name} for name in names]}).encode()

    assert harness.ask(225, body=listed("G", "H")).code == 0
    assert harness.ask(225, body=listed("I", "not good")).code == 29
    assert "I" not in harness.groups
    assert harness.ask(225, body=listed(*(f"N{n}" for n in range(LIST_MAX + 1)))).code == 1
    assert harness.ask(225, body=b'{"groupConfigList":5}').code == 1


@pytest.mark.parametrize(
    ("ext", "left"), [({}, 1), ({"cleanOffset": "true"}, -1), ({"removeOffset": "true"}, -1)]
)
def test_a_deleted_group_keeps_its_offsets_unless_requested(ext: dict[str, object], left: int) -> None:
    harness = HandlerHarness()
    harness.groups.find("G")
    harness.offsets.commit("G", "T", 0, 1)
    harness.stats.got("G", "T", 1, 1)
    for _ in range(2):
        assert harness.ask(207, {"groupName": "G"} | ext).code == 0
    assert "G" not in harness.groups
    assert harness.offsets.query("G", "T", 0) == left
    assert harness.stats.view("GROUP_GET_NUMS", "T@G") is None


def test_all_groups_are_returned_whole_or_in_pages() -> None:
    harness = HandlerHarness()
    harness.groups.forbid_reading("G", "T", True)
    whole = harness.ask(201)
    text = fastjson.loads(whole.body)
    assert whole.ext == {"totalGroupNum": "8"}
    assert text["forbiddenTable"] == {"G": {"T": 2}}
    version = json.dumps(text["dataVersion"])
    first = fastjson.loads(harness.ask(201, {"groupSeq": 0, "dataVersion": "", "maxGroupNum": 5}).body)
    rest = fastjson.loads(harness.ask(201, {"groupSeq": 5, "dataVersion": version, "maxGroupNum": 5}).body)
    assert len(first["subscriptionGroupTable"]) == 5
    assert first["subscriptionGroupTable"] | rest["subscriptionGroupTable"] == text["subscriptionGroupTable"]


def test_reading_is_forbidden_reported_and_allowed() -> None:
    harness = HandlerHarness()
    pair: dict[str, object] = {"group": "G", "topic": "T"}
    answer = harness.ask(353, pair)
    assert (answer.code, answer.remark, answer.body) == (0, "", b'{"group":"G","readable":true,"topic":"T"}')
    assert (
        harness.ask(353, pair | {"readable": "false"}).body == b'{"group":"G","readable":false,"topic":"T"}'
    )
    assert harness.ask(353, pair).body == b'{"group":"G","readable":false,"topic":"T"}'
    assert harness.ask(353, pair | {"readable": "true"}).body == b'{"group":"G","readable":true,"topic":"T"}'
    assert harness.ask(353, {"group": "a b", "topic": "T", "readable": "false"}).code == 29
