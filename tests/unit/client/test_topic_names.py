"""Names of queues as names of topics and groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import RETRY, check_group, check_stored_topic, check_topic
from firearrow.client.integrations.topic_names import queue_of, topic_of


@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        ("mail", "mail"),
        ("mail_high-1", "mail_high-1"),
        ("mail.high", "mail|2Ehigh"),
        ("büro", "b|C3|BCro"),
        ("a|b", "a|7Cb"),
        ("%RETRY%x", "|25RETRY|25x"),
        ("TBW102", "|54BW102"),
        ("rmq_sys_x", "|72mq_sys_x"),
        ("DEFAULT_CONSUMER", "|44EFAULT_CONSUMER"),
        ("CID_RMQ_SYS_x", "|43ID_RMQ_SYS_x"),
    ],
)
def test_names(queue: str, topic: str) -> None:
    assert topic_of(queue) == topic
    assert queue_of(topic) == queue


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=10))
def test_every_queue_has_a_topic_of_its_own(queue: str) -> None:
    topic = topic_of(queue)
    assert check_topic(topic) == check_group(topic) == topic
    assert queue_of(topic) == queue


@pytest.mark.parametrize("queue", ["", None, 5, "\ud800", "x" * 121, "." * 41])
def test_names_that_have_no_topic(queue: str) -> None:
    with pytest.raises(ConfigError):
        topic_of(queue)


def test_retry_topics_of_the_longest_names_can_be_deleted() -> None:
    longest = f"{RETRY}{'g' * 120}+{'t' * 127}"
    assert check_stored_topic(longest) == longest
    for name in (f"{longest}tttttttt", "t" * 128, f"{RETRY}a b", f"{RETRY}a+b+c", "a+b", ""):
        with pytest.raises(ConfigError):
            check_stored_topic(name)
