"""TrimmedQueues: its bounds, what it forgets, and its file."""

import pytest

from firearrow.broker.tables.trimmed_queues import TrimmedQueues, TrimsFull


def test_the_file_is_read_again() -> None:
    trimmed = TrimmedQueues()
    trimmed.note("T", 1, 100)
    trimmed.note("U", 0, 7)
    again = TrimmedQueues()
    again.load(trimmed.to_json())
    assert again.items() == [(("T", 1), 100), (("U", 0), 7)]


@pytest.mark.parametrize(
    "text",
    [b"[]", b'{"queues":{}}', b'{"queues":[1]}', b'{"queues":[{"topic":"T","queueId":-1,"physicalOffset":1}]}',
     b'{"queues":[{"topic":"T","queueId":1,"physicalOffset":-1}]}', b'{"queues":[{"queueId":1}]}'],
)  # fmt: skip
def test_a_damaged_file_changes_nothing(text: bytes) -> None:
    trimmed = TrimmedQueues()
    trimmed.note("T", 1, 100)
    with pytest.raises(ValueError, match=r"queue|Offset|topic|object"):
        trimmed.load(text)
    assert trimmed.items() == [(("T", 1), 100)]


def test_queues_are_bounded() -> None:
    trimmed = TrimmedQueues(queues_max=2)
    trimmed.ensure_capacity(2)
    trimmed.note("T", 0, 1)
    with pytest.raises(TrimsFull, match="at most 2"):
        trimmed.ensure_capacity(2)


def test_trims_below_the_start_of_the_log_are_forgotten() -> None:
    changes: list[int] = []
    trimmed = TrimmedQueues(lambda: changes.append(1))
    trimmed.note("T", 0, 10)
    trimmed.note("T", 1, 11)
    assert trimmed.forget_below(9) == []
    assert trimmed.forget_below(10) == [("T", 0)]
    assert trimmed.items() == [(("T", 1), 11)]
    assert len(changes) == 3


def test_a_trim_past_the_end_of_the_log_is_reset_to_it() -> None:
    trimmed = TrimmedQueues()
    trimmed.note("T", 0, 10)
    trimmed.note("T", 1, 5)
    assert trimmed.bound(8)
    assert not trimmed.bound(8)
    assert trimmed.items() == [(("T", 0), 8), (("T", 1), 5)]
