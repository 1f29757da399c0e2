"""GroupTable: groups are created on request, stored, and forbidden topics."""

import pytest

from firearrow.broker.tables.attributes import InvalidAttribute
from firearrow.broker.tables.groups import RETRY_QUEUES_MAX, GroupConfig, GroupTable, InvalidGroup
from tests.broker.tables.golden_config import config_file, lines
from tests.support.clock import ManualClock


def test_the_golden_file_is_written_as_it_was_read() -> None:
    table = GroupTable(ManualClock())
    table.load(config_file("subscriptionGroup.json"))
    assert lines(table.to_json()) == lines(config_file("subscriptionGroup.json"))


def test_a_query_creates_a_group_once() -> None:
    table = GroupTable(ManualClock())
    assert len(table) == 8
    made = table.find("G")
    assert made == GroupConfig("G")
    assert table.find("G") is made
    assert table.version.counter == 1
    assert table.find("no good name") is None
    assert table.find("g" * 121) is None


def test_only_system_groups_are_created_when_auto_creation_is_off() -> None:
    table = GroupTable(ManualClock(), auto_create=False)
    assert table.find("G") is None
    assert table.find("CID_RMQ_SYS_REVIVE_GROUP") is not None


def test_groups_are_bounded() -> None:
    table = GroupTable(ManualClock(), groups_max=9)
    assert table.find("G") is not None
    assert table.find("H") is None
    with pytest.raises(InvalidGroup, match="at most 9"):
        table.update(GroupConfig("H"))
    table.update(GroupConfig("G", retry_max_times=3))


def test_retry_queues_are_bounded() -> None:
    table = GroupTable(ManualClock())
    table.update(GroupConfig("G", retry_queues=RETRY_QUEUES_MAX))
    with pytest.raises(InvalidGroup, match="retryQueueNums must be 0 to 4096, not 4097"):
        table.update(GroupConfig("G", retry_queues=RETRY_QUEUES_MAX + 1))
    with pytest.raises(ValueError, match="retryQueueNums"):
        GroupConfig.from_object({"groupName": "G", "retryQueueNums": 2**31})


def test_a_list_is_all_or_none() -> None:
    table = GroupTable(ManualClock())
    with pytest.raises(InvalidGroup):
        table.update_all([GroupConfig("G"), GroupConfig("not good")])
    with pytest.raises(InvalidAttribute):
        table.update_all([GroupConfig("G"), GroupConfig("H", attributes={"+x": "1"})])
    assert "G" not in table


def test_reading_is_forbidden_and_allowed_again() -> None:
    table = GroupTable(ManualClock())
    assert table.readable("G", "T")
    table.forbid_reading("G", "T", True)
    table.forbid_reading("G", "T", True)
    assert (table.readable("G", "T"), table.forbidden("G", "T"), table.version.counter) == (False, 2, 1)
    again = GroupTable(ManualClock())
    again.load(table.to_json())
    assert not again.readable("G", "T")
    again.forbid_reading("G", "T", False)
    assert again.readable("G", "T")
    assert again.to_object()["forbiddenTable"] == {}


def test_a_deleted_group_is_forbidden_nothing() -> None:
    table = GroupTable(ManualClock())
    table.find("G")
    table.forbid_reading("G", "T", True)
    assert table.delete("G")
    assert not table.delete("G")
    assert table.readable("G", "T")


def test_unknown_policies_and_subscriptions_are_kept() -> None:
    value = GroupConfig("G").to_object() | {
        "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000}},
        "subscriptionDataSet": [{"topic": "T", "expression": "*"}],
    }
    assert GroupConfig.from_object(value).to_object() == value


@pytest.mark.parametrize(
    "text",
    [
        b"1",
        b'{"forbiddenTable":{"G":1}}',
        b'{"subscriptionGroupTable":{"G":{}}}',
        b'{"forbiddenTable":{"G":{"T":-1}}}',
    ],
)
def test_a_wrong_file_is_refused_and_changes_nothing(text: bytes) -> None:
    table = GroupTable(ManualClock())
    before = table.to_json()
    with pytest.raises(ValueError, match=r"."):
        table.load(text)
    assert table.to_json() == before
