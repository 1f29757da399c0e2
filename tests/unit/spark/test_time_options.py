"""Times and durations as users write them."""

import pytest

from firearrow.spark_tools.plan.option_parsing import TIME_MS_MAX, parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        (" 1760000000123 ", 1_760_000_000_123),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-11-20T08:00:00Z", 1_795_161_600_000),
        (str(TIME_MS_MAX), TIME_MS_MAX),
    ],
)
def test_a_time_is_ms_or_iso_and_utc_without_a_zone(text: str, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    "text", ["", "yesterday", "-1", "1969-12-31", str(TIME_MS_MAX + 1), "9" * 40, "1e3", "²"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected (milliseconds since 1970|a time from 1970 to 9999)"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("500ms", 0.5),
        ("30", 30),
        ("2 hours", 7200),
        ("1.5s", 1.5),
        ("366d", 366 * 86400),
        ("1 Min", 60),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1s", "367d", "3 fortnights", "1h30m", "9" * 13])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
