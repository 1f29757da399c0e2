"""Filters of PyArrow as a Pushdown. Pure functions.

Only conditions that are joined by AND are looked at, and of these only comparisons of a column with constants. The
whole filter is applied to the rows again, so what is not recognised costs time, not correctness.

PyArrow's expressions have no public structure; their text has. An unknown text narrows nothing.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow.dataset as pads

from firearrow.spark_tools.plan.comparisons import compared, one_of
from firearrow.spark_tools.plan.pushdown import Pushdown

COMPARISON = re.compile(r"(\w+) (==|>=|<=|>|<) (.+)", re.DOTALL)
IN = re.compile(r"is_in\((\w+), \{value_set=[^\[]*:\[\n(.*)\n\], null_matching_behavior=\w+\}\)", re.DOTALL)
NOT_NULL = re.compile(r"if_else\(is_valid\(\w+\), (is_in\(.*\)), null\[bool\]\)", re.DOTALL)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?Z")
NUMBER = re.compile(r"-?\d{1,19}")
PLAIN_TEXT = re.compile(r'"[^"\\\n]*"')
DEPTH_MAX = 100


def pushdown_of(expression: pads.Expression) -> Pushdown:
    found = Pushdown()
    for condition in _conditions(str(expression)):
        found = _narrowed(found, condition)
    return found


def columns_in(expression: pads.Expression, names: Iterable[str]) -> list[str]:
    """Those of `names` that the expression may use."""
    words = set(re.findall(r"\w+", str(expression)))
    return [name for name in names if name in words]


def _conditions(text: str, depth: int = 0) -> Iterator[str]:
    """The parts of a text such as `((a == 1) and (b > 2))` that are joined by `and`, without their parentheses."""
    if not (text.startswith("(") and text.endswith(")")) or depth > DEPTH_MAX:
        yield text
        return
    parts = _split(text[1:-1])
    if len(parts) == 1:
        yield parts[0]
        return
    for part in parts:
        yield from _conditions(part, depth + 1)


def _split(text: str) -> list[str]:
    """At each ` and ` outside of quotes and parentheses; the whole text if its parentheses do not match."""
    parts, begin, depth, quoted, n = [], 0, 0, False, 0
    while n < len(text):
        char = text[n]
        if quoted:
            n += char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth < 0:
                return [text]
        elif depth == 0 and text.startswith(" and ", n):
            parts.append(text[begin:n])
            n = begin = n + len(" and ")
            continue
        n += 1
    return [*parts, text[begin:]] if depth == 0 and not quoted else [text]


def _narrowed(found: Pushdown, condition: str) -> Pushdown:
    if (checked := NOT_NULL.fullmatch(condition)) is not None:
        condition = checked[1]
    if (listed := IN.fullmatch(condition)) is not None:
        lines = [line.strip() for line in listed[2].split(",\n")]
        values = [_constant(line, has_escapes=False) for line in lines]
        return found if None in values else one_of(found, listed[1], values)
    if (comparison := COMPARISON.fullmatch(condition)) is not None:
        column, operator, text = comparison.groups()
        value = _constant(text)
        return found if value is None else compared(found, column, operator, value)
    return found


def _constant(text: str, *, has_escapes: bool = True) -> Any:  # noqa: ANN401
    """None: another one. A list shows its texts without escapes."""
    if NUMBER.fullmatch(text):
        return int(text)
    if TIME.fullmatch(text):
        return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    if PLAIN_TEXT.fullmatch(text):
        return text[1:-1]
    if has_escapes and text.startswith('"'):
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, str) else None
    return None
