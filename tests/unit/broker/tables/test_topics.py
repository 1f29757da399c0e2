"""TopicTable: topics are created, changed and stored as Apache does, within limits."""

from collections.abc import Collection

import pytest

from firearrow._native.protocol.name_rules import group_fault, topic_fault
from firearrow.broker.tables.attributes import InvalidAttribute, parsed
from firearrow.broker.tables.topics import InvalidTopic, TopicConfig, TopicSettings, TopicTable
from tests.broker.tables.golden_config import config_file, lines
from tests.support.clock import ManualClock


@pytest.fixture
def notified() -> list[list[str]]:
    return []


@pytest.fixture
def table(notified: list[list[str]]) -> TopicTable:
    def changed(names: Collection[str]) -> None:
        notified.append(sorted(names))

    table = TopicTable(ManualClock(), TopicSettings(broker="broker-a", queues_max=64, topics_max=20))
    table.listen(changed)
    return table


def attributes_of(table: TopicTable, name: str) -> dict[str, str]:
    config = table.get(name)
    assert config is not None
    return config.attributes


def test_the_golden_file_is_written_as_it_was_read() -> None:
    table = TopicTable(ManualClock(), TopicSettings(broker="broker-a"))
    table.load(config_file("topics.json"))
    assert lines(table.to_json()) == lines(config_file("topics.json"))


def test_start_up_topics_exist(table: TopicTable) -> None:
    shape = {
        config.name: (config.read_queues, config.write_queues, config.perm) for config in table.configs()
    }
    assert shape == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert all(table.is_system(name) for name in shape)
    assert not table.is_system("T")


def test_options_leave_start_up_topics_out_or_change_them() -> None:
    settings = TopicSettings(
        broker="b",
        auto_create=False,
        cluster_topic=False,
        broker_topic=False,
        trace_topic=True,
        timer_topic=False,
    )
    table = TopicTable(ManualClock(), settings)
    assert "TBW102" not in table
    assert "rmq_sys_wheel_timer" not in table
    assert "RMQ_SYS_TRACE_TOPIC" in table
    assert [config.perm for name in ("DefaultCluster", "b") if (config := table.get(name))] == [1, 1]


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (9, 8), (0, 0), (-3, 0), (2**31 - 1, 8)])
def test_a_send_creates_its_topic_from_the_template(table: TopicTable, asked: int, made: int) -> None:
    config = table.create_by_send("T", "TBW102", asked)
    assert config == TopicConfig("T", made, made, 6)
    assert table.create_by_send("T", "nobody", 1) is config


def test_a_send_creates_nothing_without_an_inheritable_template(table: TopicTable) -> None:
    assert table.create_by_send("T", "nobody", 4) is None
    assert table.create_by_send("T", "SELF_TEST_TOPIC", 4) is None
    assert "T" not in table


def test_a_saved_template_is_not_inherited_when_auto_creation_is_off() -> None:
    on = TopicTable(ManualClock())
    off = TopicTable(ManualClock(), TopicSettings(auto_create=False))
    off.load(on.to_json())
    assert "TBW102" in off
    assert off.create_by_send("T", "TBW102", 4) is None


def test_every_change_is_notified_and_counted_once(table: TopicTable, notified: list[list[str]]) -> None:
    assert table.update(TopicConfig("T"))
    assert not table.update(TopicConfig("T"))
    assert table.update(TopicConfig("T", perm=4))
    assert table.update_all([TopicConfig("T", perm=4), TopicConfig("U"), TopicConfig("V")])
    assert table.delete("U")
    assert not table.delete("U")
    assert notified == [["T"], ["T"], ["U", "V"], ["U"]]
    assert table.version.counter == 4


def test_the_order_flag_of_a_retry_topic_follows(table: TopicTable) -> None:
    assert not table.create("%RETRY%G", 1).order
    assert table.create("%RETRY%G", 1, order=True).order
    assert table.get("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, order=True)


def test_queues_are_bounded_except_those_a_topic_has(table: TopicTable) -> None:
    assert table.update(TopicConfig("T", 64, 64))
    for wrong in (
        TopicConfig("U", 65, 1),
        TopicConfig("U", 1, 65),
        TopicConfig("U", -1, 1),
        TopicConfig("U", 1, -1),
    ):
        with pytest.raises(InvalidTopic, match="QueueNums must be 0 to 64"):
            table.update(wrong)
    assert table.update(TopicConfig("BenchmarkTest", 1024, 1023))
    with pytest.raises(InvalidTopic, match="readQueueNums must be 0 to 1024, not 1025"):
        table.update(TopicConfig("BenchmarkTest", 1025, 1))


def test_topics_are_bounded_and_a_list_is_all_or_none(table: TopicTable) -> None:
    harness = 20 - len(table)
    with pytest.raises(InvalidTopic, match="at most 20"):
        table.update_all([TopicConfig(f"T{n}") for n in range(harness + 1)])
    assert len(table) == 20 - harness
    assert table.update_all([TopicConfig(f"T{n}") for n in range(harness)])
    with pytest.raises(InvalidTopic):
        table.create_by_send("one-more", "TBW102", 1)
    with pytest.raises(InvalidTopic):
        table.create("%RETRY%G", 1)


def test_attributes_are_added_changed_and_deleted(table: TopicTable) -> None:
    table.update(TopicConfig("T", attributes=parsed("+message.type=FIFO,+queue.type=SimpleCQ")))
    assert attributes_of(table, "T") == {
        "message.type": "FIFO",
        "queue.type": "SimpleCQ",
    }
    table.update(TopicConfig("T", attributes=parsed("-message.type")))
    assert attributes_of(table, "T") == {"queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+message.type=FIFO,+message.type=NORMAL", "key duplication"),
        ("-message.type", "only add attribute is supported while creating topic. key: message.type"),
        ("+nothing=1", "unsupported key: nothing"),
        ("+message.type=SOFT", "value is not in set"),
        ("+=1", "kv string format wrong"),
        ("+" + "x" * 5000 + "=1", "at most 4096"),
    ],
)
def test_wrong_attributes_change_nothing(table: TopicTable, text: str, remark: str) -> None:
    with pytest.raises(InvalidAttribute) as error:
        table.update(TopicConfig("T", attributes=parsed(text)))
    assert remark in str(error.value)
    assert "T" not in table


def test_fixed_attributes_stay(table: TopicTable) -> None:
    table.update(TopicConfig("T", attributes=parsed("+queue.type=SimpleCQ")))
    for change in ("+queue.type=BatchCQ", "-queue.type"):
        with pytest.raises(InvalidAttribute, match="unchangeable"):
            table.update(TopicConfig("T", attributes=parsed(change)))
    with pytest.raises(InvalidAttribute, match="nonexistent"):
        table.update(TopicConfig("T", attributes=parsed("-message.type")))


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("a" * 127, True),
        ("a" * 128, False),
        ("%RETRY%" + "a" * 248, True),
        ("%RETRY%" + "a" * 249, False),
        ("%DLQ%" + "a" * 251, False),
        ("Az09_-%|", True),
        ("a b", False),
        ("a+b", False),
        ("a/b", False),
        ("ä", False),
        ("", False),
        (" ", False),
        ("a\n", False),
    ],
)
def test_names_of_topics(name: str, right: bool) -> None:
    assert (topic_fault(name) is None) == right


@pytest.mark.parametrize(
    ("name", "right"), [("g" * 120, True), ("g" * 121, False), ("g@x", False), ("", False)]
)
def test_names_of_groups(name: str, right: bool) -> None:
    assert (group_fault(name) is None) == right


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{",
        b'{"topicConfigTable":[]}',
        b'{"topicConfigTable":{"T":1}}',
        b'{"topicConfigTable":{"T":{"topicName":"T","perm":"x"}}}',
        b'{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":-1}}}',
        b'{"dataVersion":{"counter":"x"}}',
    ],
)
def test_a_wrong_file_is_refused_and_changes_nothing(table: TopicTable, text: bytes) -> None:
    before = table.to_json()
    with pytest.raises(ValueError, match=r"."):
        table.load(text)
    assert table.to_json() == before
