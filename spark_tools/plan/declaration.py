"""How options are declared: once, with name, parser and a sentence for the table; and how they are read.

A dataclass of options holds fields made by `option`; `read_options` makes one from what the user gave.
Pure functions; whatever is wrong raises InvalidOption, whose text names the option.
"""

import dataclasses
import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from firearrow.spark_tools.base.errors import InvalidOption

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
