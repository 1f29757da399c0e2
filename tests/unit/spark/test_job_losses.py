"""Losses of a job: all of them counted, a limited number named, and none twice when a slice is resumed."""

import pytest

from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import SliceProgress
from firearrow.spark_tools.jobs.losses import NAMED_MAX, PlanLosses, ResumedSliceLosses, SliceLosses
from tests.spark.fakes import queue_of

MANY = NAMED_MAX + 500


def part(start: int, end: int) -> QueueRange:
    return QueueRange(queue_of(), start, end)


def test_more_losses_of_a_slice_than_are_named_are_all_counted() -> None:
    mark = SliceProgress(0, 3 * MANY)
    lost = SliceLosses(mark, fail=False)
    for number in range(MANY):
        lost(part(3 * number, 3 * number + 2), "torn")
    assert mark.counts == {"lost": 2 * MANY, "lost_ranges": MANY}
    assert len(mark.detail["lost"]) == NAMED_MAX


def test_more_losses_of_a_plan_than_are_named_are_all_counted_by_topic() -> None:
    lost = PlanLosses(fail=False)
    for number in range(MANY):
        for _ in range(2):
            lost(QueueRange(queue_of(number), 0, 2), "expired")
    lost(QueueRange(queue_of(topic="Payments"), 5, 9), "expired")
    assert lost.by_topic == {
        "Orders": {"lost": 2 * MANY, "lost_ranges": MANY},
        "Payments": {"lost": 4, "lost_ranges": 1},
    }
    assert len(lost.named) == NAMED_MAX


def test_what_is_reported_again_after_a_checkpoint_counts_once() -> None:
    mark = SliceProgress(0, 0)
    lost = ResumedSliceLosses(mark, fail=False)
    lost(part(90, 100), "the store ends before them")
    lost(part(5, 8), "torn")
    lost.settle()
    assert (mark.counts, mark.detail) == ({}, {})
    mark.next = 20
    lost.settle()
    lost.settle()
    assert mark.counts == {"lost": 3, "lost_ranges": 1}
    again = ResumedSliceLosses(mark, fail=False)
    again(part(90, 100), "the store ends before them")
    mark.next = 100
    again.settle()
    assert mark.counts == {"lost": 13, "lost_ranges": 2}
    assert list(mark.detail["lost"].values()) == [3, 10]


@pytest.mark.parametrize("kind", [SliceLosses, ResumedSliceLosses])
def test_a_loss_that_may_not_be_is_raised_and_not_counted(kind: type[SliceLosses]) -> None:
    mark = SliceProgress(0, 0)
    with pytest.raises(DataLoss, match=r"\[3\.\.4\)"):
        kind(mark, fail=True)(part(3, 4), "torn")
    assert mark.counts == {}
