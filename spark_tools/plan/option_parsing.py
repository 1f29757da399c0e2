"""What texts of options mean: whole numbers, sizes, lists, tags, JSON. Pure; ValueError says what is wanted.

Times and durations as people write them: ms since 1970, ISO 8601, `15m`. Pure; ValueError says what is wanted.

How options are declared: once, with name, parser and a sentence for the table; and how they are read.

A dataclass of options holds fields made by `option`; `read_options` makes one from what the user gave.
Pure functions; whatever is wrong raises InvalidOption, whose text names the option.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from firearrow.spark_tools.base.errors import InvalidOption

LONG_MAX = (1 << 63) - 1
ITEMS_MAX = 1_000_000
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def whole(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of whole numbers within [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high} is wanted")
        return int(text)

    return parse


def size(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of bytes: `134217728`, `128m`, `128 MiB`, `1g`; units are powers of 1024."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"\s*(\d{1,19})\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
        count = int(match[1]) * _UNITS[match[2]] if match else -1
        if not low <= count <= high:
            raise ValueError(f"bytes from {low} to {high} are wanted, as 134217728 or 128m")
        return count

    return parse


def flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false is wanted")
    return text.strip().lower() == "true"


def one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in names:
            raise ValueError(f"{' or '.join(names)} is wanted")
        return text.strip().lower()

    return parse


def plain(text: str) -> str:
    if not text.strip():
        raise ValueError("a text is wanted")
    return text


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once, in their order."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in found or len(found) > ITEMS_MAX:
        raise ValueError("names separated by commas are wanted")
    return found


def tag_set(text: str) -> frozenset[str]:
    """`A || B` as subscriptions have it, or `A,B`; `*` is every message."""
    found = frozenset(part.strip() for part in re.split(r"\|\||,", text))
    if found == {"*"}:
        return frozenset()
    if "" in found or "*" in found:
        raise ValueError("tags separated by || are wanted, or * alone")
    return found


def key_set(text: str) -> frozenset[str]:
    return frozenset(names(text))


def folders(text: str) -> tuple[str, ...]:
    """One folder, or a JSON list of folders."""
    if not text.lstrip().startswith("["):
        return (plain(text),)
    found = json_value(text)
    if not found or not all(isinstance(folder, str) and folder.strip() for folder in found):
        raise ValueError('a folder is wanted, or a JSON list as ["/store/a", "/store/b"]')
    return tuple(dict.fromkeys(found))


def pattern(text: str) -> str:
    try:
        re.compile(plain(text))
    except re.error as error:
        raise ValueError(f"a regular expression is wanted: {error}") from None
    return text


def json_value(text: str) -> Any:  # noqa: ANN401
    """Parsed; members named twice are refused rather than dropped."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"JSON is wanted: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    found = json_value(text)
    if not isinstance(found, dict):
        raise ValueError("a JSON object is wanted")
    return found


def number(value: object, low: int, high: int = LONG_MAX) -> int:
    """A whole number inside of JSON, also as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"a whole number from {low} to {high} is wanted, not {value!r}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"JSON with each name once is wanted: {_twice(pairs)!r} is named twice")
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _no_constant(text: str) -> float:
    raise ValueError(f"JSON has no {text}")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits is no offset")
    return int(text)


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


T = TypeVar("T")
VALUE_CHARS_MAX = 4 << 20


def option(
    name: str, parse: Callable[[str], T], default: T, note: str, *, uses: str = "", shown: str | None = None
) -> T:
    """A field. `note`: a sentence for people. `uses`: space-separated kinds of use it is for; empty: all of them.
    `shown`: how the table shows the default."""
    metadata = {"name": name, "parse": parse, "note": note, "uses": frozenset(uses.split()), "shown": shown}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def read_options(
    kind: type[T], given: Mapping[str, str], use: str | None, *, passed: Collection[str] = ()
) -> T:
    """The dataclass `kind` from what was given; names in any case. `use`: None if it is not known. `passed`: names,
    or prefixes that end with a dot, which are somebody else's. InvalidOption: unknown, not for this use, or senseless."""
    fields = {field.metadata["name"].lower(): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in given.items():
        field = fields.get(name.lower())
        if field is None:
            if not _is_passed(name.lower(), passed):
                raise InvalidOption(
                    _unknown(name, [known.metadata["name"] for known in fields.values()], passed)
                )
        elif field.metadata["uses"] and use is not None and use not in field.metadata["uses"]:
            uses = " and ".join(sorted(field.metadata["uses"]))
            raise InvalidOption(
                f"{field.metadata['name']}: this option is for {uses} only, take it out of this {use}"
            )
        else:
            values[field.name] = read_value(field.metadata["name"], field.metadata["parse"], text)
    return kind(**values)


def read_value(name: str, parse: Callable[[str], T], text: object) -> T:
    if not isinstance(text, str):
        raise InvalidOption(f"{name}: a value is wanted, not {text!r}")
    if len(text) > VALUE_CHARS_MAX:
        raise InvalidOption(f"{name}: {len(text)} characters, at most {VALUE_CHARS_MAX}")
    try:
        return parse(text)
    except ValueError as error:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise InvalidOption(f"{name}={shown!r}: {error}") from None


def _is_passed(name: str, passed: Collection[str]) -> bool:
    return any(name.startswith(p.lower()) if p.endswith(".") else name == p.lower() for p in passed)


def _unknown(name: str, known: list[str], passed: Collection[str]) -> str:
    known += [name for name in passed if not name.endswith(".")]
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f"{name}: there is no such option" + (
        f"; {by_lower[near[0]]} is meant?" if near else ", see SPARK.md"
    )


def table(kind: type[Any]) -> str:
    """Markdown: a line for each option."""
    lines = ["| option | for | default | |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        about = field.metadata
        shown = about["shown"] if about["shown"] is not None else _shown(field.default)
        uses = ", ".join(sorted(about["uses"])) or "all"
        lines.append(
            f"| `{about['name']}` | {uses} | {shown} | {about['note'].replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default else ""
