"""222, 223, 314, 308: offsets moved by an administrator, by the broker or by the clients."""

import json
from collections.abc import Mapping

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness
from tests.support.peers import RecordedPeer

ALL: dict[str, object] = {"topic": "T", "group": "G", "queueId": -1, "offset": -1, "isForce": "true"}


def made(**options: bool) -> HandlerHarness:
    harness = HandlerHarness(**options)
    harness.topics.update(TopicConfig("T", 2, 3))
    harness.groups.find("G")
    harness.fake.times = {("T", 0): [100, 200, 300], ("T", 1): [150]}
    return harness


def reset(
    harness: HandlerHarness, timestamp: int, more: Mapping[str, object] = {}, language: int = 0
) -> RemotingCommand:
    return harness.ask(222, {**ALL, "timestamp": timestamp, **more}, language=language)


def join(harness: HandlerHarness, peer: RecordedPeer, client: str, version: int = 513) -> None:
    beat = {
        "clientID": client,
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}],
        "producerDataSet": [],
    }
    harness.ask(34, body=json.dumps(beat).encode(), peer=peer, version=version)
    peer.requests.clear()


def offsets(*pairs: tuple[int, int]) -> bytes:
    inner = ",".join(f'{{"brokerName":"broker-a","queueId":{n},"topic":"T"}}:{at}' for n, at in pairs)
    return f'{{"offsetTable":{{{inner}}}}}'.encode()


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, [(0, 0), (1, 0)]), (200, [(0, 1), (1, 1)]), (-1, [(0, 3), (1, 1)])]
)
def test_all_read_queues_are_reset_by_time(timestamp: int, expected: list[tuple[int, int]]) -> None:
    harness = made()
    answer = reset(harness, timestamp)
    assert (answer.code, answer.remark, answer.body) == (0, None, offsets(*expected))
    for queue_id, at in expected:
        assert harness.offsets.take_reset("G", "T", queue_id) == at
        assert harness.offsets.committed("G", "T", queue_id) == at


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"offset": 4}, 0, None),
        ({"offset": 5}, 1, "Target offset 5 not in consume queue range [1-3]"),
        ({"offset": 1}, 0, None),
        ({"offset": 0}, 1, "Target offset 0 not in consume queue range [1-3]"),
        ({"offset": -2}, 1, "Target offset -2 not in consume queue range [1-3]"),
        ({"queueId": 70000}, 29, "queueId must be 0 to 65535, not 70000"),
        ({"topic": "U"}, 17, "Topic U does not exist"),
        ({"group": "H"}, 26, "Group H does not exist"),
    ],
)
def test_one_queue_is_reset_within_its_range(more: dict[str, object], code: int, remark: str | None) -> None:
    harness = made()
    harness.fake.begins["T", 0] = 1
    answer = reset(harness, 0, {"queueId": 0} | more)
    assert (answer.code, answer.remark) == (code, remark)
    if code == 0:
        assert answer.body == offsets((0, int(str(more["offset"]))))
    else:
        assert not harness.offsets.has_reset("G", "T", 0)


def test_a_topic_without_queues_has_nothing_to_reset() -> None:
    harness = made()
    harness.topics.update(TopicConfig("T", 0, 0))
    assert reset(harness, 0).remark == "No queues to reset."


def test_clients_are_notified_and_move_forward_only_by_force() -> None:
    harness, peer = made(server_side_reset=False), RecordedPeer()
    for queue_id in range(3):
        harness.offsets.commit("G", "T", queue_id, 1)
    join(harness, peer, "c1")
    assert reset(harness, -1, {"isForce": "false"}).body == offsets((0, 1), (1, 1), (2, 0))
    answer = reset(harness, -1)
    assert answer.body == offsets((0, 3), (1, 1), (2, 0))
    request = peer.requests[-1]
    assert (request.code, request.is_oneway, request.body) == (220, True, answer.body)
    assert request.ext == {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "false", "queueId": "-1"}
    assert not harness.offsets.has_reset("G", "T", 0)
    reset(harness, 0, language=1)
    assert peer.requests[-1].body == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":0,"queueId":1,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":0,"queueId":2,"topic":"T"}]}'
    )


def test_a_reset_by_clients_needs_clients_that_support_it() -> None:
    harness = made(server_side_reset=False)
    assert reset(harness, 0, {"topic": "U"}).code == 17
    assert reset(harness, 0).remark == "THe consumer group <G> not exist"
    for queue_id in range(3):
        harness.offsets.commit("G", "T", queue_id, 1)
    offline = reset(harness, 0)
    what = "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 0"
    assert (offline.code, offline.remark) == (206, what)
    join(harness, old := RecordedPeer(), "c1", version=27)
    assert "does not support this feature" in str(reset(harness, 0).remark)
    assert old.requests == []


def status(answered: bytes, code: int = 0) -> RecordedPeer:
    return RecordedPeer(asked=lambda request: request.answer(code, None, None, answered))


def test_clients_report_what_they_consume() -> None:
    harness = made()
    table = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
    peers = {
        "c1": status(table),
        "broken": status(b"{"),
        "failing": status(table, 1),
        "silent": RecordedPeer(),
    }
    for client, peer in peers.items():
        join(harness, peer, client)
    for wanted in ("", "c1"):
        answer = harness.ask(223, {"topic": "T", "group": "G", "clientAddr": wanted})
        assert (answer.code, answer.body) == (
            0,
            b'{"consumerTable":{"c1":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}},"messageQueueTable":{}}',
        )
    assert peers["c1"].requests[-1].ext == {"topic": "T", "group": "G"}
    missing = harness.ask(223, {"topic": "T", "group": "H"})
    assert (missing.code, missing.remark) == (1, "No Any Consumer online in the consumer group: [H]")


def test_offsets_are_cloned_for_topics_that_the_source_subscribes() -> None:
    harness = made()
    harness.topics.update(TopicConfig("U"))
    for topic in ("T", "U", "gone"):
        harness.offsets.commit("G", topic, 0, 7)
    join(harness, RecordedPeer(), "c1")
    assert harness.ask(314, {"srcGroup": "G", "destGroup": "H"}).code == 0
    assert harness.offsets.topics_of("H") == ["T"]
    assert harness.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "U", "offline": "true"}).code == 0
    assert harness.offsets.topics_of("H") == ["T", "U"]
    assert harness.ask(314, {"srcGroup": "G", "destGroup": "a b"}).code == 29


def test_the_smallest_offset_of_the_groups_is_returned() -> None:
    harness = made()
    harness.fake.begins["T", 1] = 3
    for group, first, second in (("A", 5, 2), ("B", 4, 4), ("C", 1, 9)):
        harness.offsets.commit(group, "T", 0, first)
        harness.offsets.commit(group, "T", 1, second)
    answer = harness.ask(308, {"topic": "T", "compareGroup": "A", "filterGroups": "C"})
    assert answer.body == b'{"correctionOffsets":{0:4,1:9223372036854775807}}'
    assert harness.offsets.query("C", "T", 0) == 1
