"""What tables accept: each limit at its value, and one past it."""

import json
from collections.abc import Callable

import pytest

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow.broker.base import properties
from firearrow.broker.tables import (
    attributes,
    clients,
    groups,
    json_fields,
    paging,
    subscriptions,
)
from firearrow.broker.tables.attributes import InvalidAttribute
from firearrow.broker.tables.clients import ClientsFull, ClientTable
from firearrow.broker.tables.delay_offsets import LEVEL_MAX, DelayOffsets
from firearrow.broker.tables.groups import GroupConfig, GroupTable, InvalidGroup
from firearrow.broker.tables.locks import LocksFull, RebalanceLocks
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.offsets import ConsumerOffsets, InvalidOffset
from firearrow.broker.tables.subscriptions import HeartbeatData, InvalidSubscription, Subscription
from firearrow.broker.tables.topics import InvalidTopic, TopicConfig, TopicSettings, TopicTable
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer

CLOCK = ManualClock()


@pytest.mark.parametrize(
    ("fault", "prefix", "most"),
    [
        (name_rules.topic_fault, "", name_rules.TOPIC_CHARS_MAX),
        (name_rules.topic_fault, name_rules.RETRY_PREFIX, name_rules.RETRY_TOPIC_CHARS_MAX),
        (name_rules.topic_fault, name_rules.DLQ_PREFIX, name_rules.RETRY_TOPIC_CHARS_MAX),
        (name_rules.group_fault, "", name_rules.GROUP_CHARS_MAX),
    ],
)
def test_names(fault: Callable[[str], str | None], prefix: str, most: int) -> None:
    assert fault(prefix + "n" * (most - len(prefix))) is None
    assert str(most) in (fault(prefix + "n" * (most - len(prefix) + 1)) or "")


def test_attributes() -> None:
    key = "+message.type="
    assert attributes.parsed(key + "x" * (attributes.CHARS_MAX - len(key)))
    with pytest.raises(InvalidAttribute, match=f"at most {attributes.CHARS_MAX}"):
        attributes.parsed(key + "x" * (attributes.CHARS_MAX - len(key) + 1))
    many = {f"+k{n}": "v" for n in range(attributes.PAIRS_MAX + 1)}
    with pytest.raises(InvalidAttribute, match=f"at most {attributes.PAIRS_MAX}"):
        attributes.apply_changes({}, None, many)
    del many["+k0"]
    with pytest.raises(InvalidAttribute, match="k1"):  # no longer for their number
        attributes.apply_changes({}, None, many)


def beat(client_id: str, padding: int = 0) -> bytes:
    return json.dumps({"clientID": client_id}).encode() + b" " * padding


def test_heartbeats() -> None:
    most = subscriptions.CLIENT_ID_CHARS_MAX
    assert HeartbeatData.read(beat("c" * most)).client_id == "c" * most
    with pytest.raises(ValueError, match=f"at most {most}"):
        HeartbeatData.read(beat("c" * (most + 1)))
    room = subscriptions.BYTES_MAX - len(beat("c"))
    assert HeartbeatData.read(beat("c", room)).client_id == "c"
    with pytest.raises(ValueError, match=f"at most {subscriptions.BYTES_MAX}"):
        HeartbeatData.read(beat("c", room + 1))


def test_expressions() -> None:
    most = subscriptions.EXPRESSION_CHARS_MAX
    assert Subscription.of_expression("T", "a" * most).expression == "a" * most
    with pytest.raises(InvalidSubscription):
        Subscription.of_expression("T", "a" * (most + 1))
    assert Subscription.from_object({"topic": "T", "subString": "a" * most}).expression == "a" * most
    with pytest.raises(ValueError, match=f"at most {most}"):
        Subscription.from_object({"topic": "T", "subString": "a" * (most + 1)})


def test_retries_of_a_group() -> None:
    table = GroupTable(CLOCK)
    table.update(
        GroupConfig("G", retry_queues=groups.RETRY_QUEUES_MAX, retry_max_times=groups.RETRY_TIMES_MAX)
    )
    with pytest.raises(InvalidGroup, match="retryQueueNums"):
        table.update(GroupConfig("G", retry_queues=groups.RETRY_QUEUES_MAX + 1))
    with pytest.raises(InvalidGroup, match="retryMaxTimes"):
        table.update(GroupConfig("G", retry_max_times=groups.RETRY_TIMES_MAX + 1))


def test_groups_of_a_broker() -> None:
    full = len(GroupTable(CLOCK)) + 2
    table = GroupTable(CLOCK, groups_max=full)
    assert table.find("A") is not None
    assert table.find("B") is not None
    assert table.find("C") is None
    with pytest.raises(InvalidGroup, match=f"at most {full}"):
        table.update(GroupConfig("C"))


def test_topics_forbidden_to_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FORBIDDEN_MAX", 2)
    table = GroupTable(CLOCK)
    table.forbid_reading("G", "A", True)
    table.forbid_reading("H", "B", True)
    with pytest.raises(InvalidGroup, match="at most 2"):
        table.forbid_reading("G", "C", True)
    table.forbid_reading("G", "A", False)
    table.forbid_reading("G", "C", True)
    assert not table.readable("G", "C")


def test_topics_of_a_broker_and_their_queues() -> None:
    full = len(TopicTable(CLOCK)) + 1
    table = TopicTable(CLOCK, TopicSettings(topics_max=full))
    table.update(TopicConfig("A", 4096, 4096))
    with pytest.raises(InvalidTopic, match=f"at most {full}"):
        table.update(TopicConfig("B"))
    with pytest.raises(InvalidTopic, match="4096"):
        table.update(TopicConfig("A", 4097, 4))


def member(peer: RecordedPeer) -> Member:
    return Member(f"c{peer.number}", peer, 0, 0, 0)


def test_groups_of_a_connection() -> None:
    table, peer = ClientTable(CLOCK, memberships_max=2), RecordedPeer()
    for group in ("A", "B", "A"):
        table.note_producer(group, member(peer))
    with pytest.raises(ClientsFull, match="2 groups"):
        table.note_producer("C", member(peer))
    table.note_producer("C", member(RecordedPeer()))


def test_groups_that_are_online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "GROUPS_MAX", 2)
    table, peer = ClientTable(CLOCK), RecordedPeer()
    for group in ("A", "B", "A"):
        table.note_producer(group, member(peer))
    with pytest.raises(ClientsFull, match="at most 2"):
        table.note_producer("C", member(peer))
    refused = RecordedPeer()
    with pytest.raises(ClientsFull, match="at most 2"):
        table.note_producer("C", member(refused))
    assert refused not in table._produces  # nothing of a refused one is stored


def test_memberships_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MEMBERSHIPS_MAX", 2)
    table, first, second = ClientTable(CLOCK), RecordedPeer(), RecordedPeer()
    for peer in (first, second, first):
        table.note_producer("A", member(peer))
    with pytest.raises(ClientsFull, match="2 memberships"):
        table.note_producer("A", member(RecordedPeer()))
    table.leave_all(first)
    table.note_producer("A", member(RecordedPeer()))


def test_weight_of_subscriptions_from_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Subscription("T").weight
    monkeypatch.setattr(clients, "COMPENSATIONS_WEIGHT_MAX", 2 * weight)
    table = ClientTable(CLOCK)
    for group in ("A", "B", "B"):
        table.compensate(group, Subscription("T"))
    assert table.subscription("A", "T") == table.subscription("B", "T") == Subscription("T")
    table.compensate("C", Subscription("T"))
    assert table.subscription("A", "T") is None
    assert table.subscription("B", "T") == table.subscription("C", "T") == Subscription("T")


def test_weight_of_subscriptions() -> None:
    weight = Subscription("T").weight
    table, peer = ClientTable(CLOCK, weight_max=2 * weight), RecordedPeer()
    table.begin_consumer("G", member(peer), "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    assert table.subscribe("G", Subscription("A"), peer)
    assert table.subscribe("G", Subscription("B"), peer)
    with pytest.raises(ClientsFull, match="memory"):
        table.subscribe("G", Subscription("C"), peer)
    table.leave_all(peer)
    table.begin_consumer("G", member(peer), "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    assert table.subscribe("G", Subscription("C"), peer)


def test_queues_with_offsets() -> None:
    table = ConsumerOffsets(CLOCK, queues_max=2)
    for queue_id in (0, 1, 0):
        table.commit("G", "T", queue_id, 5)
    with pytest.raises(InvalidOffset, match="at most 2"):
        table.commit("G", "T", 2, 5)
    for queue_id in (0, 1, 2):
        table.note_pull("G", "T", queue_id, 9)
    assert [table.pulled("G", "T", queue_id) for queue_id in (0, 1, 2)] == [9, 9, -1]


def test_locked_queues() -> None:
    locks = RebalanceLocks(CLOCK, locks_max=2)
    queues = [MessageQueue("T", "b", n) for n in range(3)]
    assert locks.lock("G", "c", queues[:2]) == queues[:2]
    with pytest.raises(LocksFull, match="at most 2"):
        locks.lock("G", "c", queues[2:])


def test_delay_levels_of_the_file() -> None:
    text = '{"dataVersion":{},"offsetTable":{%d:1}}'
    DelayOffsets(CLOCK).load((text % LEVEL_MAX).encode())
    with pytest.raises(ValueError, match=f"level {LEVEL_MAX + 1}"):
        DelayOffsets(CLOCK).load((text % (LEVEL_MAX + 1)).encode())


def test_numbers_of_bodies() -> None:
    for most, high in ((json_fields.INT_MAX, {}), (json_fields.LONG_MAX, {"high": json_fields.LONG_MAX})):
        assert json_fields.number({"n": most}, "n", **high) == most
        with pytest.raises(ValueError, match="n"):
            json_fields.number({"n": most + 1}, "n", **high)


def test_tables_in_an_answer() -> None:
    assert paging.too_large(bytes(paging.BODY_BYTES_MAX)) is None
    assert str(paging.BODY_BYTES_MAX) in (paging.too_large(bytes(paging.BODY_BYTES_MAX + 1)) or "")


def test_properties_files() -> None:
    most = properties.TEXT_CHARS_MAX
    assert properties.parse("#" * most) == {}
    with pytest.raises(ValueError, match="character"):
        properties.parse("#" * (most + 1))
