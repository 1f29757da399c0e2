"""Times and durations as people write them: ms since 1970, ISO 8601, `15m`. Pure; ValueError says what is wanted."""

import re
from datetime import UTC, datetime

TIME_MS_MAX = 253_402_300_799_999  # the last of year 9999
DURATION_S_MAX = 366 * 86400.0
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of `1760000000000` or `2026-11-20T08:00:00+01:00`; without a zone it is UTC."""
    text = text.strip()
    try:
        ms = int(text) if text.isdecimal() else _iso_ms(text)
    except ValueError:
        raise ValueError(
            "milliseconds since 1970 are wanted, or a time as 2026-11-20T08:00:00 (UTC) or with a zone"
        ) from None
    if not 0 <= ms <= TIME_MS_MAX:
        raise ValueError("a time from 1970 to 9999 is wanted")
    return ms


def _iso_ms(text: str) -> int:
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_duration(text: str) -> float:
    """Seconds of `500ms`, `30s`, `15m`, `2 hours`; a bare number is seconds."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([a-z]*)\s*", text.lower())
    unit = match[2] if match else ""
    unit = {"second": "s", "sec": "s", "minute": "m", "hour": "h", "day": "d"}.get(
        unit.removesuffix("s"), unit
    ) or "s"
    if match is None or unit not in _UNITS_S:
        raise ValueError("a duration as 500ms, 30s, 15m, 2h or 1d is wanted")
    seconds = float(match[1]) * _UNITS_S[unit]
    if seconds > DURATION_S_MAX:
        raise ValueError("a duration of at most a year is wanted")
    return seconds
