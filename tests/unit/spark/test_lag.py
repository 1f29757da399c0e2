"""The lag of a stream."""

from firearrow.spark_tools.plan.stream_offsets import StreamLag
from tests.spark.fakes import queue_of

Q0, Q1, Q2 = queue_of(0), queue_of(1), queue_of(2)


def test_the_lag_is_what_is_left_in_each_queue() -> None:
    lag = StreamLag.between({Q0: 5, Q1: 9}, {Q0: 10, Q1: 9, Q2: 4})
    assert lag.by_queue == {Q0: 5, Q1: 0, Q2: 4}
    assert (lag.messages, lag.least, lag.most, lag.mean) == (9, 0, 5, 3.0)
    assert str(lag) == "9 messages behind in 3 queues, at most 5 in one"


def test_an_end_that_went_back_is_no_lag() -> None:
    assert StreamLag.between({Q0: 5}, {Q0: 3}).messages == 0


def test_nothing_has_no_lag() -> None:
    lag = StreamLag.between({}, {})
    assert (lag.messages, lag.least, lag.most, lag.mean) == (0, 0, 0, 0.0)
