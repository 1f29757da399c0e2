"""Which messages may be in one batch, and how many."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.wire.message_properties import batch_body
from firearrow.client.base.errors import MessageRefused
from firearrow.client.base.message import Message
from firearrow.client.send.batch import check_batch, encoded_bytes, split
from firearrow.client.send.prepare import unique_ids

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=50
)
MESSAGES = st.builds(
    Message,
    st.just("t"),
    st.binary(max_size=300),
    tags=st.none() | TEXT,
    keys=st.lists(TEXT, max_size=3),
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
    sharding_key=st.none() | TEXT,
    priority=st.none() | st.integers(0, (1 << 31) - 1),
    wait_store=st.booleans(),
)


@given(MESSAGES)
def test_no_message_takes_more_than_is_reckoned(message: Message) -> None:
    assert len(batch_body([message], unique_ids())) <= encoded_bytes(message)


@given(st.lists(MESSAGES, max_size=30), st.integers(1, 3000), st.integers(1, 10))
def test_every_message_is_in_one_list_in_order_and_lists_fit(
    messages: list[Message], bytes_max: int, count_max: int
) -> None:
    batches = list(split(messages, bytes_max, count_max))
    assert [id(message) for batch in batches for message in batch] == [id(message) for message in messages]
    for batch in batches:
        assert 0 < len(batch) <= count_max
        if len(batch) > 1:
            assert len(batch_body(batch, unique_ids())) <= bytes_max


def test_a_list_is_as_long_as_it_may_be() -> None:
    messages = [Message("t", b"x" * 100) for _ in range(7)]
    three = sum(encoded_bytes(message) for message in messages[:3])
    assert [len(batch) for batch in split(messages, three)] == [3, 3, 1]
    assert [len(batch) for batch in split(messages, three - 1)] == [2, 2, 2, 1]
    assert [len(batch) for batch in split(messages, count_max=7)] == [7]
    assert [len(batch) for batch in split(messages, count_max=6)] == [6, 1]


def test_what_is_too_large_alone_is_left_to_the_limit_of_messages() -> None:
    small, large = Message("t", b"x"), Message("t", b"x" * 5000)
    assert list(split([small, large, small], 1000)) == [[small], [large], [small]]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "no message"),
        ([Message("t", b""), Message("u", b"")], "topics t and u"),
        ([Message("%RETRY%g", b"")], "retry"),
        ([Message("t", b""), Message("t", b"", wait_store=False)], "wait_store"),
        ([Message("t", b"", delay_level=1)], "delayed"),
        ([Message("t", b"", sharding_key="a"), Message("t", b"", sharding_key="b")], "sharding_key"),
        ([Message("t", b""), Message("t", b"", sharding_key="b")], "sharding_key"),
        ([Message("t", b""), Message("t", b"", delay_s=0)], "delayed"),
        ([Message("t", b""), Message("t", b"", deliver_at_ms=0)], "delayed"),
    ],
)
def test_what_may_not_travel_together(messages: list[Message], expected: str) -> None:
    with pytest.raises(MessageRefused, match=expected):
        check_batch(messages)


def test_what_may() -> None:
    check_batch([Message("t", b"")])
    check_batch([Message("t", b"", sharding_key="a"), Message("t", b"", sharding_key="a")])
    check_batch([Message("t", b"", sharding_key="a"), Message("t", b"", sharding_key="b")], anywhere=False)
    check_batch([Message("t", b"", tags="a"), Message("t", b"x", keys=["k"], properties={"a": "b"})])


@pytest.mark.parametrize(
    "more", [{"tags": 1}, {"keys": [1]}, {"properties": {"k": 1}}, {"properties": {1: "v"}}]
)
def test_what_is_no_text_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(MessageRefused, match="must be a str"):
        encoded_bytes(Message("t", b"", **more))
