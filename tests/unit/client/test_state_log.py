"""A state of a client is one line in its log, and its end is one."""

import logging

import pytest

from firearrow.client.base.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    NoRoute,
    OffsetUnknown,
    RequestTimeout,
)
from firearrow.client.base.state_log import KEYS_MAX, QUIET_S, StateLog
from tests.support.clock import ManualClock

LOG = logging.getLogger("firearrow.client")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


def test_a_day_of_a_slow_consumer_is_one_line(caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
    state = StateLog(LOG, "%s is over, it was seen %d times", clock)
    with caplog.at_level(logging.INFO, "firearrow.client"):
        for second in range(24 * 60 * 6):
            state.is_there("T", "%s begins at %d", "T", second)
            clock.advance(10_000)
            state.is_absent("T")
        assert caplog.messages == ["T begins at 0"]
        clock.advance(QUIET_S * 1000)
        state.is_absent("T")
        state.is_absent("T")
        assert caplog.messages[1:] == [f"T is over, it was seen {24 * 60 * 6} times"]
        state.is_there("T", "again")
    assert caplog.messages[2:] == ["again"]


def test_a_state_that_comes_back_after_the_quiet_time_has_ended_before(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    state = StateLog(LOG, "%s is over, it was seen %d times", clock, level=logging.WARNING)
    with caplog.at_level(logging.INFO, "firearrow.client"):
        state.is_there("T", "first")
        clock.advance(QUIET_S * 1000)
        state.is_there("T", "second")
    assert caplog.messages == ["first", "T is over, it was seen 1 times", "second"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_keys_are_apart_and_bounded(caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
    state = StateLog(LOG, "%s is over, it was seen %d times", clock)
    with caplog.at_level(logging.INFO, "firearrow.client"):
        for number in range(KEYS_MAX + 5):
            state.is_there(number, "line %d", number)
        assert len(caplog.messages) == KEYS_MAX + 5
        state.is_absent("unknown")
    assert len(state._seen) == KEYS_MAX


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ConnectFailed("no server"), logging.DEBUG),
        (ConnectionLost("lost"), logging.DEBUG),
        (RequestTimeout("late"), logging.INFO),
        (NoRoute("no route"), logging.INFO),
        (BrokerError(16, "no permission", "broker-a"), logging.WARNING),
        (ValueError("unreadable"), logging.WARNING),
    ],
)
def test_a_failure_that_ends_by_itself_is_no_warning(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """That a server is not connected is logged elsewhere, once for all requests."""
    unknown = OffsetUnknown("the offset could not be read")
    unknown.__cause__ = error
    with caplog.at_level(logging.DEBUG, "firearrow.client"):
        for failure in (error, unknown):
            state = StateLog(LOG, "%s is over, it was seen %d times", clock, level=logging.WARNING)
            state.failed("T", failure, "failed: %s", failure)
    assert [record.levelno for record in caplog.records] == [level, level]
