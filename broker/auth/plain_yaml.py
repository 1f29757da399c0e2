"""The YAML of `plain_acl.yml`, parsed by PyYAML (the extra `acl`): mappings, lists and texts. Pure functions.

The values are those of SnakeYAML in Apache's brokers from 5.0 on, which keep the text of a number (those up to 4.9 make
1000000 of `1_000_000`). A file of permissions must not be read in another way than it was meant: anchors, tags, keys
that occur twice or merge mappings are refused. `*` and `*.*.*.*` need no quotes, unlike there.
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
_MERGE = "<<"
_NUMBER_START = "-+.0123456789"
_STAR = re.compile(r"(?:^|[\s,\[{])\*", re.M)
_STARS = re.compile(r"\*[*.:]*(?=[ \t]*(?:[\r\n\0,\]}]|[ \t]#))")
"""Addresses that SnakeYAML and PyYAML take for an alias."""
_STARS_MAX = 64


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
    # for PyYAML 1e5 is a text, for Apache's brokers up to 4.9 a number
    dumper.add_implicit_resolver("number", re.compile(""), list(_NUMBER_START))
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
        fast = getattr(yaml, "CSafeLoader", None)
        self._events = yaml.parse(text, Loader=_loader(yaml) if fast is None or _STAR.search(text) else fast)
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
    if text == _MERGE:
        raise _fault(scalar, "merges a mapping: write the values themselves, or put << in quotes")
    return text


def _loader(yaml: ModuleType) -> type:
    """PyYAML's own, for which `*` is a text."""

    def fetch_alias(loader: Any) -> None:  # noqa: ANN401 (a scanner of PyYAML, which has no types)
        if _STARS.match(loader.prefix(_STARS_MAX)):
            loader.fetch_plain()
        else:
            yaml.SafeLoader.fetch_alias(loader)

    return type("Loader", (yaml.SafeLoader,), {"fetch_alias": fetch_alias})


def _fault(event: Event, what: str) -> YamlError:
    return YamlError(f"line {event.start_mark.line + 1} {what}")
