"""The size of a micro-batch: shares in proportion, from each queue that has messages, and waiting for enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.stream_offsets import RateLimits, shared, within_bytes
from tests.spark.fakes import queue_of
from tests.support.clock import ManualClock


def lengths(limits: RateLimits, *waiting: int, at_once: bool = False, size: int = 100) -> list[int]:
    starts = {queue_of(index): 7 for index in range(len(waiting))}
    ends = {queue_of(index): 7 + count for index, count in enumerate(waiting)}
    found = limits.end(starts, ends, lambda part: len(part) * size, at_once)
    assert found.keys() == starts.keys()
    return [found[queue] - 7 for queue in sorted(found)]


def limits(**given: float) -> RateLimits:
    return RateLimits(**{"clock": ManualClock(100_000), **given})  # type: ignore[arg-type]


def test_without_limits_all_is_taken() -> None:
    assert lengths(limits(), 1000, 0, 3) == [1000, 0, 3]


def test_the_most_is_shared_in_proportion_and_small_ones_get_one() -> None:
    assert lengths(limits(messages_max=100), 700, 200, 100) == [70, 20, 10]
    assert lengths(limits(messages_max=100), 1_000_000, 1, 0) == [99, 1, 0]
    assert lengths(limits(messages_max=1000), 700, 200, 100) == [700, 200, 100]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.integers(1, 20_000))
def test_shares_are_fair_and_fill_the_limit(counts: list[int], most: int) -> None:
    ranges = [QueueRange(queue_of(index), 5, 5 + count) for index, count in enumerate(counts)]
    cut = {part.queue: part for part in shared(ranges, most)}
    filled = sum(1 for count in counts if count)
    for part in ranges:
        assert cut[part.queue].start == part.start
        assert min(1, len(part)) <= len(cut[part.queue]) <= len(part)
    total = sum(map(len, cut.values()))
    assert total <= max(most, filled)
    assert total >= min(most, sum(counts))


def test_bytes_are_shared_too_and_softly() -> None:
    assert lengths(limits(bytes_max=10_000), 70, 20, 10) == [70, 20, 10]
    assert lengths(limits(bytes_max=5_000), 70, 20, 10) == [35, 10, 5]
    assert lengths(limits(bytes_max=1), 70, 20, 0) == [1, 1, 0]


def test_a_heavy_beginning_is_cut_again() -> None:
    def size_of(part: QueueRange) -> int:
        """The first ten weigh 1000 each, the others 10."""
        return sum(1000 if offset < 10 else 10 for offset in range(part.start, part.end))

    (cut,) = within_bytes([QueueRange(queue_of(), 0, 1000)], 4000, size_of)
    assert 1 <= len(cut) <= 4
    assert size_of(cut) <= 4000


def test_messages_are_waited_for_until_there_are_enough_or_it_took_too_long() -> None:
    clock = ManualClock(100_000)
    waiting = RateLimits(messages_min=10, delay_max_s=60, clock=clock)
    assert lengths(waiting, 5, 4) == [0, 0]
    assert lengths(waiting, 5, 5) == [5, 5]
    clock.advance(59_000)
    assert lengths(waiting, 5, 4) == [0, 0]
    clock.advance(1000)
    assert lengths(waiting, 5, 4) == [5, 4]
    assert lengths(waiting, 5, 4) == [0, 0]


def test_a_read_of_everything_waits_for_nothing() -> None:
    assert lengths(limits(messages_min=10), 5, 4, at_once=True) == [5, 4]


def test_the_least_and_the_most_go_together() -> None:
    both = limits(messages_min=10, messages_max=20)
    assert lengths(both, 9) == [0]
    assert lengths(both, 100) == [20]


@pytest.mark.parametrize("queues", [0, 3])
def test_nothing_is_nothing(queues: int) -> None:
    found: list[int] = lengths(limits(messages_max=1, bytes_max=1, messages_min=0), *[0] * queues)
    assert found == [0] * queues
