"""Splitting ranges into parts loses nothing, repeats nothing, keeps order, and respects its bounds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.splits import SMALL_BYTES, SPLITS_MAX, SplitPolicy, split_range, weight
from tests.spark.fakes import queue_of
from tests.support.examples import examples

MIB = 1 << 20
RANGES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 5000), st.integers(0, 1 << 32)), min_size=0, max_size=12
).map(
    lambda rows: [
        QueueRange(queue_of(index), start, start + count, size if count else 0)
        for index, (start, count, size) in enumerate(rows)
    ]
)
CUTS = st.builds(
    SplitPolicy, st.integers(0, 60), st.integers(0, 2000), st.sampled_from([1 << 16, MIB, 128 * MIB])
)


def ranges(*sizes_mib: int, records: int = 1000) -> list[QueueRange]:
    return [QueueRange(queue_of(index), 5, 5 + records, size * MIB) for index, size in enumerate(sizes_mib)]


@examples(60)
@given(RANGES, CUTS)
def test_every_message_is_in_exactly_one_part_and_in_order(asked: list[QueueRange], cut: SplitPolicy) -> None:
    flat = [each for part in cut.parts(asked) for each in part]
    for whole in asked:
        mine = [each for each in flat if each.queue == whole.queue]
        assert all(one.end == other.start for one, other in pairwise(mine))
        assert (
            (sum(map(len, mine)), mine[0].start, mine[-1].end) == (len(whole), whole.start, whole.end)
            if mine
            else True
        )
        assert bool(mine) == bool(len(whole))
        assert all(len(each) for each in mine)


@examples(60)
@given(RANGES, CUTS)
def test_parts_hold_their_bounds(asked: list[QueueRange], cut: SplitPolicy) -> None:
    parts = cut.parts(asked)
    messages = sum(map(len, asked))
    assert len(parts) >= min(cut.parts_min, messages)
    for part in parts:
        if cut.records_max:
            assert sum(map(len, part)) <= cut.records_max
        if len(part) > 1:
            assert sum(map(weight, part)) <= max(cut.bytes_max, SMALL_BYTES)


@given(st.integers(0, 1 << 40), st.integers(1, 3000), st.integers(0, 1 << 40), st.integers(1, 300))
def test_dividing_is_even_and_leaves_no_odd_last_one(start: int, count: int, size: int, times: int) -> None:
    divided = split_range(QueueRange(queue_of(), start, start + count, size), times)
    assert len(divided) == min(times, count)
    assert sum(map(len, divided)) == count
    assert max(map(len, divided)) - min(map(len, divided)) <= 1
    assert sum(each.size for each in divided) <= size + len(divided)


def test_a_large_queue_is_divided_and_small_ones_go_together() -> None:
    parts = SplitPolicy().parts(ranges(512, 1, 1, 1))
    assert [len(part) for part in parts] == [1, 1, 1, 1, 3]
    assert [sum(map(len, part)) for part in parts] == [250] * 4 + [3000]


def test_there_are_some_parts_where_there_is_enough_for_each() -> None:
    assert len(SplitPolicy().parts(ranges(*[64] * 16))) == 8
    assert len(SplitPolicy().parts(ranges(*[1] * 16))) == 1
    assert len(SplitPolicy().parts(ranges(*[16] * 16))) == 8


def test_min_partitions_divides_large_ones_by_weight() -> None:
    parts = SplitPolicy(parts_min=10).parts(ranges(100, 10, 10))
    assert len(parts) == 10
    assert [sum(part[0].queue.queue_id == each for part in parts) for each in range(3)] == [8, 1, 1]


def test_there_are_never_more_parts_than_messages() -> None:
    assert len(SplitPolicy(parts_min=100).parts(ranges(1, 1, records=3))) == 6


def test_unknown_sizes_are_guessed() -> None:
    part = QueueRange(queue_of(), 0, 1_000_000)
    assert len(SplitPolicy(bytes_max=128 * MIB).parts([part])) == 8


def test_the_number_of_parts_is_bounded() -> None:
    assert len(SplitPolicy(records_max=10).parts([QueueRange(queue_of(), 0, SPLITS_MAX * 10)])) == SPLITS_MAX
    with pytest.raises(
        InvalidOption, match=f"maxRecordsPerPartition .* {SPLITS_MAX + 1} partitions, at most"
    ):
        SplitPolicy(records_max=10).parts([QueueRange(queue_of(), 0, SPLITS_MAX * 10 + 1)])


@pytest.mark.parametrize("cut", [SplitPolicy(), SplitPolicy(parts_min=3), SplitPolicy(records_max=1)])
def test_nothing_is_no_part(cut: SplitPolicy) -> None:
    assert cut.parts([]) == []
    assert cut.parts([QueueRange(queue_of(), 4, 4)]) == []
