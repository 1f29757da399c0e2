"""Topics and groups of LMQs: they exist by their name alone, and no table stores them."""

from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.lmq import LmqGroupTable, LmqTopicTable
from firearrow.broker.tables.topics import TopicConfig
from tests.support.clock import ManualClock

LONGEST = "%LMQ%" + "x" * 250


def test_an_lmq_has_one_queue_and_no_entry() -> None:
    topics = LmqTopicTable(ManualClock())
    version, count = topics.version, len(topics)
    assert topics.get(LONGEST) == TopicConfig(LONGEST, 1, 1)
    assert topics.get(LONGEST + "x") is None
    assert LONGEST in topics
    assert "other" not in topics
    topics.update(TopicConfig("%LMQ%one", 4, 4))
    topics.create("%LMQ%two", 4)
    assert (len(topics), topics.version, topics.get("%LMQ%one")) == (
        count,
        version,
        TopicConfig("%LMQ%one", 1, 1),
    )
    topics.update(TopicConfig("plain", 4, 4))
    assert topics.get("plain") == TopicConfig("plain", 4, 4)
    assert b"LMQ" not in topics.to_json()


def test_an_lmq_group_has_defaults_and_no_entry() -> None:
    groups = LmqGroupTable(ManualClock(), auto_create=False)
    count = len(groups)
    assert groups.find(LONGEST) == groups.get(LONGEST) == GroupConfig(LONGEST)
    assert groups.find(LONGEST + "x") is None
    assert LONGEST in groups
    groups.update(GroupConfig("%LMQ%g", consume_enable=False))
    assert (len(groups), groups.find("%LMQ%g")) == (count, GroupConfig("%LMQ%g"))
    groups.update(GroupConfig("plain"))
    assert groups.find("plain") == GroupConfig("plain")
