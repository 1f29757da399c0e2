"""Rendering: templates, cells with their links, curves as SVG. Every value is text from outside and is escaped.

Values become HTML in templates only, which escape all of them; nothing here returns markup but the points of a curve,
which are numbers. Loop thread.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from firearrow.client.base.names import DLQ
from firearrow.client.base.times import age_text, now_ms, time_text
from firearrow.client.cli.output import CAPITAL, Colour, Column, Kind, bytes_text

FOLDER = Path(__file__).parent
CELL_CHARS = 300
"""Of a value in a table; the rest is its title."""
CURVE_POINTS = 240
CURVE_WIDTH, CURVE_HEIGHT = 600.0, 80.0
CLASSES = {Colour.RED: "bad", Colour.YELLOW: "warn", Colour.GREEN: "good"}
RIGHT = (Kind.COUNT, Kind.BYTES, Kind.AGE)
PAGES = {"topic": "topics", "originTopic": "topics", "group": "groups"}
"""Columns whose values have pages."""


class Part(NamedTuple):
    """A text with the page that it leads to; "": none."""

    text: str
    href: str = ""


class Cell(NamedTuple):
    """`title`: the whole value, where the text is shorter."""

    parts: Sequence[Part]
    title: str = ""
    kind: str = ""


def path(*parts: str) -> str:
    """A path with these parts, each of which may hold any character."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def address(base: str, /, **values: object) -> str:
    """`values`: of the query; their names may come from visitors."""
    given = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"{base}?{urlencode(given)}" if given else base


def visible(value: object) -> str:
    """A text without characters that are not seen or turn others around: they come from outside."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}" for char in text)


def shortened(text: str, most: int = CELL_CHARS) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_time(at_ms: int) -> str:
    """Of today the time, of other days the date as well; where the console runs."""
    if not at_ms:
        return "–"
    day, _, time = time_text(at_ms).partition("T")
    is_today = day == time_text(now_ms()).partition("T")[0]
    return time[:12] if is_today else f"{day} {time[:8]}"


def value_text(value: object, kind: Kind = Kind.TEXT) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        match kind:
            case Kind.TIME:
                return time_text(int(value)) if value else "–"
            case Kind.AGE:
                return age_text(int(value))
            case Kind.BYTES:
                return bytes_text(value)
            case Kind.COUNT:
                return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(name)}: {value_text(each)}" for name, each in value.items()) or "–"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(value_text(each) for each in value) or "–"
    return visible(value)


def words(name: str) -> str:
    """`retries max` for `retriesMax`; names in capitals stay as they are."""
    if name.isupper():
        return visible(name)
    return CAPITAL.sub(lambda found: f" {found[0].lower()}", visible(name).removesuffix("Ms"))


def cell(row: Mapping[str, Any], column: Column) -> Cell:
    value = row.get(column.name)
    text = value_text(value, column.kind)
    colour = column.colour(row)
    kinds = ["number"] if column.kind in RIGHT else ["time"] if column.kind is Kind.TIME else []
    kinds += [CLASSES[colour]] if colour is not None else []
    if column.name in ("groups", "topics") and isinstance(value, list | tuple) and value:
        parts = [Part(visible(each), path(column.name, str(each))) for each in value]
        return Cell(parts, "", " ".join(kinds))
    kinds += ["body"] if column.name == "body" else []
    short = short_time(value) if column.kind is Kind.TIME and isinstance(value, int) else shortened(text)
    return Cell([Part(short, _href(row, column.name))], text if short != text else "", " ".join(kinds))


def _href(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value:
        return ""
    if name in PAGES:
        return path(PAGES[name], value)
    if name in ("msgId", "headMsgId") and isinstance(row.get("topic"), str) and row["topic"]:
        return path("topics", row["topic"], "messages", value)
    if name == "user":
        return path("users", value)
    if name == "job" and value.isdecimal():
        return path("jobs", value)
    return ""


# ---- curves ----


class Curve(NamedTuple):
    """A series: its newest and its largest value, points `x,y x,y` of its line. `loaded`: where its numbers are."""

    name: str
    last: str
    most: str
    points: str
    loaded: str = ""


def thinned(values: Sequence[float | None], most: int = CURVE_POINTS) -> list[float | None]:
    """The largest of each of `most` equal parts; None where nothing is known."""
    count = min(most, len(values))
    parts = (values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count))
    return [max((value for value in part if value is not None), default=None) for part in parts]


def curve(name: str, values: Sequence[float | None], kind: Kind = Kind.COUNT, loaded: str = "") -> Curve:
    shown = thinned(values)
    known = [value for value in shown if value is not None]
    top = max(known, default=0.0)
    step = CURVE_WIDTH / max(len(shown) - 1, 1)
    points = " ".join(
        f"{i * step:.1f},{CURVE_HEIGHT * (1 - value / top if top else 1):.1f}"
        for i, value in enumerate(shown)
        if value is not None
    )
    last, most = (value_text(round(each, 1), kind) for each in (known[-1] if known else 0, top))
    return Curve(name, last, most, points, loaded)


class Bar(NamedTuple):
    """A bar of a histogram: its place and height in a box of 600 × 80, and what it stands for."""

    x: float
    y: float
    width: float
    height: float
    title: str


def bars(times: Sequence[int], begin: int, end: int, count: int = 48) -> list[Bar]:
    """How many of these times are in each of `count` equal parts."""
    counts = [0] * count
    span = max(end - begin, 1)
    for each in times:
        counts[min(max((each - begin) * count // span, 0), count - 1)] += 1
    top, width = max(counts, default=1) or 1, CURVE_WIDTH / count
    return [
        Bar(
            round(i * width, 1),
            round(CURVE_HEIGHT * (1 - number / top), 1),
            round(width - 1, 1),
            round(CURVE_HEIGHT * number / top, 1),
            f"{time_text(begin + i * span // count)}: {number}",
        )
        for i, number in enumerate(counts)
        if number
    ]


# ---- templates ----


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "cell": cell,
        "path": path,
        "address": address,
        "value_text": value_text,
        "visible": visible,
        "words": words,
        "shortened": shortened,
        "short_time": short_time,
        "dead_letters": DLQ,
        "Kind": Kind,
    }
    return made
