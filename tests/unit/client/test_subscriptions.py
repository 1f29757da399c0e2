"""What is subscribed to: one record as Java builds it, and the table of them with its handlers."""

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import Namespace
from firearrow.client.consume.subscriptions import Subscriptions
from firearrow.client.rebalance.subscription import Subscription


def handler(messages: list[ReceivedMessage]) -> None: ...


def other(messages: list[ReceivedMessage]) -> None: ...


# ---- one ----


@pytest.mark.parametrize("tags", [None, "", "*"])
def test_no_tags_are_all(tags: str | None) -> None:
    wanted = Subscription.of("t", tags)
    assert (wanted.kind, wanted.expression, wanted.tags, wanted.codes) == (
        "TAG",
        "*",
        frozenset(),
        frozenset(),
    )


def test_tags_are_split_and_trimmed_and_the_text_stays() -> None:
    wanted = Subscription.of("t", " TagA ||TagB|| ||TagA")
    assert wanted.expression == " TagA ||TagB|| ||TagA"
    assert wanted.tags == {"TagA", "TagB"}
    assert wanted.codes == {2598919, 2598920}


@pytest.mark.parametrize("tags", ["||", " ", " || "])
def test_tags_without_a_tag_are_refused(tags: str) -> None:
    with pytest.raises(ConfigError, match="tag"):
        Subscription.of("t", tags)


def test_sql_stays_as_it_is_and_excludes_tags() -> None:
    wanted = Subscription.of("t", sql="a > 1 || b")
    assert (wanted.kind, wanted.expression, wanted.tags) == ("SQL92", "a > 1 || b", frozenset())
    with pytest.raises(ConfigError, match="both"):
        Subscription.of("t", "a", "b")
    with pytest.raises(ConfigError, match="empty"):
        Subscription.of("t", sql=" ")


def test_a_renewed_one_is_newer_for_every_clock() -> None:
    wanted = Subscription.of("t")
    assert wanted.renewed(wanted.version + 5).version == wanted.version + 5
    assert wanted.renewed(wanted.version - 5).version == wanted.version + 1


def test_heartbeats_have_java_s_form() -> None:
    wanted = Subscription.of("t", "b||a")
    assert wanted.heartbeat_json() == {
        "classFilterMode": False,
        "topic": "t",
        "subString": "b||a",
        "tagsSet": ["a", "b"],
        "codeSet": [97, 98],
        "subVersion": wanted.version,
        "expressionType": "TAG",
    }


# ---- the table ----


def test_topics_are_kept_by_their_names_at_the_brokers_and_handlers_by_those_of_users() -> None:
    table = Subscriptions(Namespace("ns"))
    table.add("orders", "a", None, handler)
    assert list(table) == ["ns%orders"]
    assert table["ns%orders"].topic == "ns%orders"
    assert table.handler_of("orders") is handler
    assert table.handler_of("ns%orders") is None
    assert table.handlers


def test_subscribing_again_replaces_the_filter_and_the_handler() -> None:
    table = Subscriptions(Namespace(None))
    table.add("orders", "a", None, handler)
    table.add("orders", "b", None, other)
    assert len(table) == 1
    assert table["orders"].tags == {"b"}
    assert table.handler_of("orders") is other


def test_a_handler_outlives_its_subscription() -> None:
    table = Subscriptions(Namespace("ns"))
    table.add("orders", None, None, handler)
    assert table.drop("orders")
    assert not table.drop("orders")
    assert len(table) == 0
    assert table.handler_of("orders") is handler


def test_retry_topics_are_wanted_whole_and_need_no_handler() -> None:
    table = Subscriptions(Namespace(None))
    table.add_all_of("%RETRY%group")
    before = table["%RETRY%group"]
    table.add_all_of("%RETRY%group")
    assert table["%RETRY%group"] is before
    assert before.expression == "*"
    assert not table.handlers


def test_pops_retry_topics_go_to_the_handler_of_their_topic() -> None:
    table = Subscriptions(Namespace("ns"))
    table.add("orders", "a", None, handler)
    table.add_retries("%RETRY%ns%group_ns%orders", "ns%orders")
    assert table["%RETRY%ns%group_ns%orders"].expression == "*"
    assert table.handler_of(Namespace("ns").unwrap("%RETRY%ns%group_ns%orders")) is handler
    assert table.drop("%RETRY%ns%group_ns%orders")
    assert list(table) == ["ns%orders"]


def test_renewing_changes_what_is_reported_and_not_what_is_pulled_with() -> None:
    table = Subscriptions(Namespace(None), clock_ms=lambda: 1 << 50)
    table.add("orders", None, None, handler)
    before = table["orders"]
    table.renew("orders")
    table.renew("never heard of")
    assert table["orders"] is before
    assert [(each.topic, each.version) for each in table.for_heartbeat()] == [("orders", 1 << 50)]


def test_what_is_subscribed_again_is_newer_than_what_was_reported() -> None:
    table = Subscriptions(Namespace(None), clock_ms=lambda: 1 << 50)
    table.add("orders", "a", None, handler)
    table.renew("orders")
    table.drop("orders")
    assert table.for_heartbeat() == []
    table.add("orders", "b", None, handler)
    assert table["orders"].version == (1 << 50) + 1
    assert table.for_heartbeat() == [table["orders"]]


def test_it_may_change_while_it_is_walked() -> None:
    table = Subscriptions(Namespace(None))
    for topic in ("a", "b", "c"):
        table.add(topic, None, None, handler)
    for topic in table:
        table.drop(topic)
    assert len(table) == 0
