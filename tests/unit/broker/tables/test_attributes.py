"""Values of attributes: what Apache's verify accepts, at its limits, and its errors for the rest."""

import pytest

from firearrow.broker.tables.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    InvalidAttribute,
    apply_changes,
    number_of,
)


@pytest.mark.parametrize("value", ["0", "100", "57"])
def test_a_priority_factor_is_a_percentage(value: str) -> None:
    assert apply_changes(GROUP_ATTRIBUTES, None, {"+priority.factor": value}) == {"priority.factor": value}


@pytest.mark.parametrize(
    ("key", "value", "remark"),
    [
        ("priority.factor", "-1", r"value is not in range\(0, 100\)"),
        ("priority.factor", "101", r"value is not in range\(0, 100\)"),
        ("priority.factor", "many", "value is not a number: many"),
        ("priority.factor", "9" * 400, "value is not a number"),
        ("priority.factor", "--5", "value is not a number"),
    ],
)
def test_other_factors_are_refused(key: str, value: str, remark: str) -> None:
    with pytest.raises(InvalidAttribute, match=remark):
        apply_changes(GROUP_ATTRIBUTES, None, {f"+{key}": value})


def test_a_reserve_time_is_any_long_from_minus_one() -> None:
    for value in ("-1", str((1 << 63) - 1)):
        assert apply_changes(TOPIC_ATTRIBUTES, None, {"+reserve.time": value})["reserve.time"] == value
    for value in ("-2", str(1 << 63)):
        with pytest.raises(InvalidAttribute, match="value is not in range"):
            apply_changes(TOPIC_ATTRIBUTES, None, {"+reserve.time": value})


@pytest.mark.parametrize(
    "kind", ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED", "UNSPECIFIED"]
)
def test_a_topic_may_name_the_type_of_its_messages(kind: str) -> None:
    assert apply_changes(TOPIC_ATTRIBUTES, None, {"+message.type": kind}) == {"message.type": kind}


def test_attributes_of_lite_topics_and_their_groups() -> None:
    lite = {"+message.type": "LITE", "+lite.topic.expiration": "43200"}
    assert apply_changes(TOPIC_ATTRIBUTES, None, lite)["lite.topic.expiration"] == "43200"
    group = {
        "+lite.bind.topic": "T",
        "+lite.sub.model": "Exclusive",
        "+lite.sub.client.quota": "-1",
        "+lite.sub.wildcard": "false",
        "+lite.sub.reset.offset.exclusive": "True",
        "+lite.sub.reset.offset.unsubscribe": "false",
    }
    assert len(apply_changes(GROUP_ATTRIBUTES, None, group)) == len(group)
    with pytest.raises(InvalidAttribute, match=r"not in range\(-1, 43200\)"):
        apply_changes(TOPIC_ATTRIBUTES, None, {"+lite.topic.expiration": "43201"})
    for key, value, remark in (
        ("lite.sub.model", "shared", "value is not in set: shared"),
        ("lite.sub.client.max.event.cnt", "10", "this broker has no such limit"),
        ("lite.sub.reset.offset.exclusive", "yes", "boolean attribute format is wrong"),
        ("lite.sub.wildcard", "True", "wildcard groups of lite topics are not supported"),
        ("lite.sub.wildcard", "x", "boolean attribute format is wrong"),
    ):
        with pytest.raises(InvalidAttribute, match=remark):
            apply_changes(GROUP_ATTRIBUTES, None, {f"+{key}": value})


@pytest.mark.parametrize("text", ["many", "", "9" * 400])
def test_a_number_that_a_file_has_otherwise_counts_as_missing(text: str) -> None:
    assert number_of({"lite.sub.client.quota": text}, "lite.sub.client.quota", 7) == 7


@pytest.mark.parametrize(
    ("key", "value", "remark"),
    [
        ("queue.type", "RocksDBCQ", "value is not in set: RocksDBCQ"),
        ("cleanup.policy", "ARCHIVE", "value is not in set: ARCHIVE"),
    ],
)
def test_other_kinds_of_topics_are_refused(key: str, value: str, remark: str) -> None:
    with pytest.raises(InvalidAttribute, match=remark):
        apply_changes(TOPIC_ATTRIBUTES, None, {f"+{key}": value})


@pytest.mark.parametrize(
    ("kind", "policy"), [("SimpleCQ", "DELETE"), ("BatchCQ", "DELETE"), ("SimpleCQ", "COMPACTION")]
)
def test_the_usual_kinds_may_be_named(kind: str, policy: str) -> None:
    usual = {"queue.type": kind, "cleanup.policy": policy}
    assert apply_changes(TOPIC_ATTRIBUTES, None, {f"+{key}": value for key, value in usual.items()}) == usual
