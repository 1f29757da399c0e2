"""Times and durations as they are typed and shown: ISO, relative (`-15m`), or seconds or milliseconds since 1970."""

import re
import time
from datetime import UTC, datetime

from firearrow.client.base.errors import ConfigError

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ms|s|m|h|d|w)")
EPOCH_S_MAX = 1 << 33
"""Larger numbers are milliseconds; as seconds this is the year 2242."""
YEAR_MAX_MS = 253_402_300_799_999
"""The end of the year 9999, beyond which `datetime` has no times."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def duration_ms(text: str) -> int:
    """`90s`, `1h30m`, `2d`; a bare number is seconds. ConfigError."""
    if text.isdecimal() and text.isascii():
        return _bounded(int(text[:16]) * 1000, text)
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ConfigError(f"{text!r} is not a duration: write 90s, 15m, 1h30m or 2d")
    return _bounded(int(sum(float(number) * UNIT_MS[unit] for number, unit in parts)), text)


def time_ms(text: str) -> int:
    """`now`, `-15m`, `+1h`, an ISO time (local unless it names its zone), or seconds or milliseconds since 1970.

    ConfigError.
    """
    if text == "now":
        return now_ms()
    if text[:1] in ("-", "+"):
        return now_ms() + (-1 if text[0] == "-" else 1) * duration_ms(text[1:])
    if text.isdecimal() and text.isascii():
        number = int(text[:16])
        return _bounded(number if number > EPOCH_S_MAX else number * 1000, text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is not a time: write 2026-01-31T12:00, -15m, or seconds since 1970"
        ) from None


def _bounded(milliseconds: int, text: str) -> int:
    if milliseconds > YEAR_MAX_MS:
        raise ConfigError(f"{text!r} is beyond the year 9999")
    return milliseconds


def time_text(milliseconds: int) -> str:
    """Local time with its zone's offset, to the millisecond, as `time_ms` reads it again."""
    if not 0 <= milliseconds <= YEAR_MAX_MS:
        return str(milliseconds)
    when = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return when.isoformat(sep="T", timespec="milliseconds")


def age_text(milliseconds: int) -> str:
    """The two largest units: `350ms`, `12.4s`, `3m20s`, `5d4h`"""
    if milliseconds < 0:
        return f"-{age_text(-milliseconds)}"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f}s"
    seconds = milliseconds // 1000
    for large, small, divisor, name, next_name in (
        (86_400, 3600, 24, "d", "h"),
        (3600, 60, 60, "h", "m"),
        (60, 1, 60, "m", "s"),
    ):
        if seconds >= large:
            return f"{seconds // large}{name}{seconds // small % divisor}{next_name}"
    raise AssertionError(milliseconds)
