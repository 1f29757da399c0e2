"""Offsets: JSON both ways, what start and end points mean for existing queues, what is gone named as lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.offsets import (
    AtTime,
    AtTimes,
    OffsetEdge,
    PerQueue,
    Point,
    offsets_json,
    offsets_of,
)
from firearrow.spark_tools.plan.start_end import OffsetResolver, available_part
from tests.spark.fakes import FakeLog, queue_of
from tests.support.recorder import Recorder

Q0, Q1, Q2 = queue_of(0), queue_of(1), queue_of(2)
QUEUES = st.builds(MessageQueue, st.text(min_size=1), st.text(min_size=1), st.integers(0, 2**31 - 1))


@given(st.dictionaries(QUEUES, st.integers(0, 2**63 - 1)))
def test_offsets_come_back_from_their_json(offsets: dict[MessageQueue, int]) -> None:
    assert offsets_of(offsets_json(offsets)) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    one, other = {Q0: 1, Q1: 2}, {Q1: 2, Q0: 1}
    assert str(offsets_json(one)) == str(offsets_json(other)) == "{'Orders': {'broker-a': {'0': 1, '1': 2}}}"


@pytest.fixture
def log() -> FakeLog:
    """Queue 0: offsets 10 to 20, stored 100 to 109; queue 1: 0 to 5, stored 100; queue 2: nothing."""
    log = FakeLog()
    for ms in range(90, 110):
        log.add(Q0, stored_ms=ms)
    log.expire(Q0, 10)
    log.add(Q1, 5, stored_ms=100)
    log.add(Q2, 1)
    log.expire(Q2, 1)
    return log


def named(losses: Recorder) -> list[tuple[str, str]]:
    return [(str(part), why) for part, why in losses]


def starts(log: FakeLog, point: Point, strategy: str = "error") -> tuple[list[int], list[tuple[str, str]]]:
    losses = Recorder()
    bounds = log.bounds([Q0, Q1, Q2])
    return list(OffsetResolver(log, losses, strategy).starts(point, bounds).values()), named(losses)


def ends(log: FakeLog, point: Point) -> tuple[list[int], list[tuple[str, str]]]:
    losses = Recorder()
    return list(OffsetResolver(log, losses).ends(point, log.bounds([Q0, Q1, Q2])).values()), named(losses)


def test_starts_within_what_is_there(log: FakeLog) -> None:
    assert starts(log, OffsetEdge.EARLIEST) == ([10, 0, 1], [])
    assert starts(log, OffsetEdge.LATEST) == ([20, 5, 1], [])
    assert starts(log, PerQueue({Q0: 12})) == ([12, 0, 1], [])
    assert starts(log, PerQueue({Q0: -1, Q1: -2})) == ([20, 0, 1], [])
    assert starts(log, PerQueue({Q0: 20})) == ([20, 0, 1], [])


def test_starts_that_are_gone_are_named(log: FakeLog) -> None:
    assert starts(log, PerQueue({Q0: 3})) == (
        [10, 0, 1],
        [("Orders@broker-a:0[3..10)", "expired: the queue begins at 10")],
    )
    assert starts(log, PerQueue({Q1: 9})) == (
        [10, 5, 1],
        [("Orders@broker-a:1[5..9)", "beyond the end of the queue, which is 5")],
    )


@given(st.integers(0, 12), st.integers(0, 8), st.integers(2, 6), st.integers(0, 6))
def test_of_a_range_all_is_read_or_reported(start: int, count: int, first: int, long: int) -> None:
    asked, losses = QueueRange(Q0, start, start + count), []
    left = available_part(asked, first, first + long, lambda part, _: losses.append(part))
    found = sorted(n for part in (left, *losses) for n in range(part.start, part.end))
    assert found == list(range(start, start + count))
    assert all(first <= n < first + long for n in range(left.start, left.end))
    assert not any(first <= n < first + long for part in losses for n in range(part.start, part.end))
    assert all(len(part) for part in losses)


def test_ends_within_what_is_there(log: FakeLog) -> None:
    assert ends(log, OffsetEdge.LATEST) == ([20, 5, 1], [])
    assert ends(log, PerQueue({Q0: 15, Q1: -1})) == ([15, 5, 1], [])
    assert ends(log, PerQueue({Q0: 5})) == ([10, 5, 1], [])
    assert ends(log, AtTime(105)) == ([15, 5, 1], [])
    assert ends(log, AtTime(9000)) == ([20, 5, 1], [])
    assert ends(log, AtTime(1)) == ([10, 0, 1], [])
    assert ends(log, AtTimes({Q0: 101})) == ([11, 5, 1], [])


def test_ends_that_are_not_there_are_named(log: FakeLog) -> None:
    assert ends(log, PerQueue({Q1: 8})) == (
        [20, 5, 1],
        [("Orders@broker-a:1[5..8)", "beyond the end of the queue, which is 5")],
    )


def test_a_time_starts_at_the_first_message_stored_then_or_later(log: FakeLog) -> None:
    assert starts(log, AtTime(100)) == ([10, 0, 1], [])
    assert starts(log, AtTime(1)) == ([10, 0, 1], [])
    assert starts(log, AtTimes({Q0: 105})) == ([15, 0, 1], [])


def test_a_queue_without_messages_since_then_is_an_error_or_read_from_its_end(log: FakeLog) -> None:
    with pytest.raises(InvalidOption, match=r"broker-a:1\[0\.\.5\) has no message stored at 105 ms or later"):
        starts(log, AtTime(105))
    assert starts(log, AtTime(105), "latest") == ([15, 5, 1], [])
    assert starts(log, AtTimes({Q1: 105}), "latest") == ([10, 5, 1], [])


@pytest.mark.parametrize("point", [PerQueue({queue_of(7): 1}), AtTimes({queue_of(7): 1})])
def test_a_queue_that_is_not_read_is_not_let_pass(log: FakeLog, point: Point) -> None:
    with pytest.raises(
        InvalidOption, match="startingOffsets: queue 7 of Orders at broker-a is not one of the queues"
    ):
        starts(log, point)
    with pytest.raises(InvalidOption, match="endingOffsets: queue 7"):
        ends(log, point)
