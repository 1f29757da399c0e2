"""Lost ranges: all named in one error, or one warning for each, and counted."""

import pytest

from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.plan.data_loss import NAMED_MAX, DataLosses, FailFast
from tests.spark.fakes import queue_of


def part(start: int, end: int, queue_id: int = 0) -> QueueRange:
    return QueueRange(queue_of(queue_id), start, end)


def test_all_that_is_lost_is_named_in_one_error() -> None:
    losses = DataLosses(fail=True)
    losses(part(0, 10), "expired")
    losses(part(5, 6, 1), "torn")
    with pytest.raises(DataLoss) as error:
        losses.check()
    assert str(error.value) == (
        "11 messages are missing: Orders@broker-a:0[0..10): expired; Orders@broker-a:1[5..6): torn; "
        "to read the rest, set failOnDataLoss=false, or --no-fail-on-data-loss for a job"
    )


def test_an_error_names_so_many_and_counts_the_rest() -> None:
    losses = DataLosses(fail=True)
    for queue_id in range(NAMED_MAX + 3):
        losses(part(0, 1, queue_id), "expired")
    assert f":{NAMED_MAX - 1}[0..1): expired; and 3 more" in str(losses)
    assert f":{NAMED_MAX}[" not in str(losses)


def test_nothing_lost_is_no_error() -> None:
    DataLosses(fail=True).check()


def test_losses_that_may_be_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    losses = DataLosses(fail=False)
    for _ in range(3):
        losses(part(0, 10), "expired")
        losses.check()
    assert (losses.ranges, losses.messages) == (1, 10)
    assert [record.getMessage() for record in caplog.records] == [
        "data loss: Orders@broker-a:0[0..10): expired"
    ]


def test_a_task_ends_at_the_first_loss() -> None:
    with pytest.raises(DataLoss, match=r"\[3\.\.4\)"):
        FailFast(fail=True)(part(3, 4), "torn")
    counting = FailFast(fail=False)
    counting(part(3, 4), "torn")
    assert counting.messages == 1
