"""Option parsing: declares options with their parsers, reads them from strings, prints their table.

A dataclass of options has fields made by `option`: name, parser, default and a sentence for the table.
`read_options` builds it from the user's strings. Parsers cover whole numbers, sizes, lists, tags, JSON, times
(ms since 1970, ISO 8601) and durations (`15m`). Pure functions. A parser raises ValueError and states what it
expected; `read_options` and `read_value` raise InvalidOption, which names the option.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

from firearrow.spark_tools.base.errors import InvalidOption

LONG_MAX = (1 << 63) - 1
ITEMS_MAX = 1_000_000
SHOWN_MAX = 12
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def whole(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of whole numbers within [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def size(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of bytes: `134217728`, `128m`, `128 MiB`, `1g`; units are powers of 1024."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"(\d{1,19})\s*([kmgt]?)(?:i?b)?", text.lower().strip(), re.ASCII)
        count = int(match[1]) * _UNITS[match[2]] if match else -1
        if not low <= count <= high:
            raise ValueError(f"expected {low} to {high} bytes, such as 134217728 or 128m")
        return count

    return parse


def flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.strip().lower() == "true"


def one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in names:
            raise ValueError(f"expected {' or '.join(names)}")
        return text.strip().lower()

    return parse


def plain(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a value that is not blank")
    return text


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once, in their order."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in found or len(found) > ITEMS_MAX:
        raise ValueError("expected names separated by commas")
    return found


def tag_set(text: str) -> frozenset[str]:
    """`A || B` as in subscriptions, or `A,B`; `*` selects every message."""
    found = frozenset(part.strip() for part in re.split(r"\|\||,", text))
    if found == {"*"}:
        return frozenset()
    if "" in found or "*" in found:
        raise ValueError("expected tags separated by ||, or a single *")
    return found


def key_set(text: str) -> frozenset[str]:
    return frozenset(names(text))


def folders(text: str) -> tuple[str, ...]:
    """One folder, or a JSON list of folders."""
    if not text.lstrip().startswith("["):
        return (plain(text),)
    found = json_value(text)
    if not found or not all(isinstance(folder, str) and folder.strip() for folder in found):
        raise ValueError('expected a folder, or a JSON list such as ["/store/a", "/store/b"]')
    return tuple(dict.fromkeys(found))


def pattern(text: str) -> str:
    try:
        re.compile(plain(text))
    except re.error as error:
        raise ValueError(f"not a valid regular expression: {error}") from None
    return text


def json_value(text: str) -> Any:  # noqa: ANN401
    """Parse JSON. Reject duplicate names instead of dropping one."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    found = json_value(text)
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    return found


def number(value: object, low: int, high: int = LONG_MAX) -> int:
    """A whole number in JSON; a string of digits counts too."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"expected a whole number from {low} to {high}, not {value!r}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"{_twice(pairs)!r} is named twice in the JSON")
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not valid JSON")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number with {len(text)} digits is not an offset")
    return int(text)


TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999
DURATION_S_MAX = 366 * 86400.0
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of `1760000000000` or `2026-11-20T08:00:00+01:00`; without a zone it is UTC."""
    text = text.strip()
    try:
        ms = int(text) if text.isdecimal() else _iso_ms(text)
    except ValueError:
        raise ValueError(
            "expected milliseconds since 1970, or a time such as 2026-11-20T08:00:00 (UTC unless it has a "
            "zone)"
        ) from None
    if not 0 <= ms <= TIME_MS_MAX:
        raise ValueError("expected a time from 1970 to 9999")
    return ms


def _iso_ms(text: str) -> int:
    when = datetime.fromisoformat(text)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_duration(text: str) -> float:
    """Seconds of `500ms`, `30s`, `15m`, `2 hours`; a bare number is seconds."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)\s*([a-z]*)", text.lower().strip())
    unit = match[2] if match else ""
    unit = {"second": "s", "sec": "s", "minute": "m", "hour": "h", "day": "d"}.get(
        unit.removesuffix("s"), unit
    ) or "s"
    if match is None or unit not in _UNITS_S:
        raise ValueError("expected a duration such as 500ms, 30s, 15m, 2h or 1d")
    seconds = float(match[1]) * _UNITS_S[unit]
    if seconds > DURATION_S_MAX:
        raise ValueError("expected a duration of at most one year")
    return seconds


T = TypeVar("T")
VALUE_CHARS_MAX = 4 << 20


def option(
    name: str, parse: Callable[[str], T], default: T, note: str, *, uses: str = "", shown: str | None = None
) -> T:
    """A dataclass field. `note`: its sentence in the table. `uses`: where it is allowed, separated by spaces;
    empty: everywhere. `shown`: the default as the table shows it."""
    metadata = {"name": name, "parse": parse, "note": note, "uses": frozenset(uses.split()), "shown": shown}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def read_options(
    kind: type[T],
    given: Mapping[str, str],
    use: str | None,
    *,
    passed: Collection[str] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> T:
    """Build the dataclass `kind`; option names are case-insensitive. `use`: None if it is not known.
    `passed`: names, or prefixes that end with a dot, which other code reads. `instead`: unknown names, or such
    prefixes, in lower case → what to do instead. InvalidOption: unknown, not allowed for this use, or
    malformed."""
    fields = {field.metadata["name"].lower(): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in given.items():
        field = fields.get(name.lower())
        if field is None:
            if not _is_passed(name.lower(), passed):
                known = [known.metadata["name"] for known in fields.values()]
                raise InvalidOption(_instead(name, instead) or _unknown(name, known, passed))
        elif field.metadata["uses"] and use is not None and use not in field.metadata["uses"]:
            uses = " and ".join(sorted(field.metadata["uses"]))
            raise InvalidOption(
                f"{field.metadata['name']}: this option is only for {uses}; remove it from this {use}"
            )
        else:
            values[field.name] = read_value(field.metadata["name"], field.metadata["parse"], text)
    return kind(**values)


def read_value(name: str, parse: Callable[[str], T], text: object) -> T:
    if not isinstance(text, str):
        raise InvalidOption(f"{name}: expected a string, not {text!r}")
    if len(text) > VALUE_CHARS_MAX:
        raise InvalidOption(f"{name}: {len(text)} characters, but at most {VALUE_CHARS_MAX} are allowed")
    try:
        return parse(text)
    except ValueError as error:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise InvalidOption(f"{name}={shown!r}: {error}") from None


def key_values(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Options that are given as `KEY=VALUE`. InvalidOption."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidOption(f"{option}: expected KEY=VALUE, not {text!r}")
        found[key] = value
    return found


def _is_passed(name: str, passed: Collection[str]) -> bool:
    return any(name.startswith(p.lower()) if p.endswith(".") else name == p.lower() for p in passed)


def _instead(name: str, instead: Mapping[str, str]) -> str:
    lower = name.lower()
    sentence = next((instead[key] for key in instead if key in (lower, lower.split(".")[0] + ".")), "")
    return sentence and f"{name}: {sentence}"


def _unknown(name: str, known: list[str], passed: Collection[str]) -> str:
    known += [name for name in passed if not name.endswith(".")]
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f"{name}: unknown option; " + (
        f"did you mean {by_lower[near[0]]}?"
        if near
        else f"options are, for example, {', '.join(known[:SHOWN_MAX])}"
    )


def table(kind: type[Any]) -> str:
    """A Markdown list with one line per option: what it is for, unless for all uses, its default, and its note."""
    lines = []
    for field in dataclasses.fields(kind):
        about = field.metadata
        shown = about["shown"] if about["shown"] is not None else _shown(field.default)
        facts = ", ".join(filter(None, (*sorted(about["uses"]), shown)))
        lines.append(f"- `{about['name']}`{f' ({facts})' if facts else ''}: {about['note']}")
    return "\n".join(lines)


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default else ""
