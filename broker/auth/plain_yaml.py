"""The YAML of `plain_acl.yml`, parsed by PyYAML (the extra `acl`): mappings, lists and texts. Pure functions.

Apache's brokers use SnakeYAML: those up to 4.9 give a scalar its type and make a text of that (`1_000_000` becomes
1000000), those from 5.0 on keep its text. A file of permissions must not be read in another way than it was meant:
what the two read differently is refused, as are anchors, tags, and keys that occur twice.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from firearrow.broker.base.errors import StartError

Event = Any
"""One of PyYAML, which has no types."""
BYTES_MAX = 4 << 20
DEPTH_MAX = 8
VALUES_MAX = 500_000
"""Keys, scalars, lists and mappings."""
_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
"""Also with a capital, or in capitals."""
_OTHER_TYPE = re.compile(
    r"""([-+]?0b_*[01][01_]* | [-+]?0x_*[0-9a-fA-F][0-9a-fA-F_]* | [-+]?0[0-7_]+ | [-+]?(0|[1-9][0-9_]*)
    | [-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?
    | [-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)? | [-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    | [-+]?\.(inf|Inf|INF) | \.(nan|NaN|NAN) | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)? | << | =)\Z""",
    re.VERBOSE,
)
"""Integers, floats, times, the key that merges mappings and the default value, in YAML 1.1."""
_DECIMAL = re.compile("0|-?[1-9][0-9]*")
"""Integers whose text is the same after they were read."""


class YamlError(ValueError):
    """The text is not YAML, or more of it than `plain_acl.yml` needs; the message names the line."""


def parse(text: str) -> object:
    """Dicts, lists, and scalars as str (a missing value: "", a bool: "true" or "false"). YamlError; StartError:
    PyYAML is missing."""
    yaml = _yaml()
    if len(text) > BYTES_MAX:
        raise YamlError(f"{len(text)} characters, at most {BYTES_MAX} are allowed")
    try:
        return _Document(yaml, text).read()
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise YamlError(f"line {line} is not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlError(str(error).partition("\n")[0]) from None


def dump(value: dict[str, object]) -> str:
    """The text of a mapping as `parse` reads it. Mappings keep their order; comments are lost. ValueError: a str has
    a control character."""
    yaml = _yaml()
    if not all(text.isprintable() for text in _texts(value)):
        raise ValueError("a text has a character that cannot be printed")
    dumper: Any = type("Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
    dumper.add_implicit_resolver("number", _OTHER_TYPE, list("-+.0123456789"))  # PyYAML takes 1e5 for a text
    written: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=BYTES_MAX)
    return written


def _yaml() -> ModuleType:
    try:
        return import_module("yaml")  # few need it
    except ModuleNotFoundError:
        raise StartError("plain_acl.yml needs the package PyYAML: pip install 'firearrow[acl]'") from None


def _texts(value: object) -> Iterator[str]:
    """All of it, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value:
            yield from _texts(each)
        if isinstance(value, dict):
            yield from _texts(list(value.values()))


class _Document:
    """The only document of a text, made from PyYAML's events: nothing is kept of what is refused."""

    def __init__(self, yaml: ModuleType, text: str) -> None:
        self._yaml = yaml
        self._events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._values = 0

    def read(self) -> object:
        next(self._events)
        if isinstance(next(self._events), self._yaml.StreamEndEvent):
            return {}
        value = self._value(next(self._events), 0)
        next(self._events)
        if not isinstance(after := next(self._events), self._yaml.StreamEndEvent):
            raise _fault(after, "starts a second document")
        return value

    def _value(self, event: Event, depth: int) -> object:
        self._values += 1
        if self._values > VALUES_MAX:
            raise _fault(event, f"has more than {VALUES_MAX} values with those above")
        if (
            event.anchor is not None or getattr(event, "tag", None) is not None
        ):  # the anchor of an alias as well
            raise _fault(
                event, "has an anchor, an alias or a tag: write the value itself, or put it in quotes"
            )
        if isinstance(event, self._yaml.ScalarEvent):
            return _text(event)
        if depth > DEPTH_MAX:
            raise _fault(event, f"is nested deeper than {DEPTH_MAX} levels")
        if isinstance(event, self._yaml.SequenceStartEvent):
            return [self._value(item, depth + 1) for item in self._until(self._yaml.SequenceEndEvent)]
        found: dict[str, object] = {}
        for item in self._until(self._yaml.MappingEndEvent):
            key = self._value(item, depth + 1)
            if not isinstance(key, str):
                raise _fault(item, "has a key that is not a text")
            if key in found:
                raise _fault(item, f"has {key[:40]} for the second time")
            found[key] = self._value(next(self._events), depth + 1)
        return found

    def _until(self, end: type) -> Iterator[Event]:
        while not isinstance(event := next(self._events), end):
            yield event


def _text(scalar: Event) -> str:
    """The text of a scalar, which has a type only without quotes."""
    text: str = scalar.value
    text.encode()  # an escape may be half a character
    if not scalar.implicit[0]:
        return text
    if text in _NULLS:
        return ""
    if text.lower() in _BOOLS and text in (text.lower(), text.upper(), text.capitalize()):
        return _BOOLS[text.lower()]
    if _OTHER_TYPE.match(text) and not _DECIMAL.fullmatch(text):
        raise _fault(scalar, "has a number or time that brokers read differently: put it in quotes")
    return text


def _fault(event: Event, what: str) -> YamlError:
    return YamlError(f"line {event.start_mark.line + 1} {what}")
