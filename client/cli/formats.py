"""Formats of values as they are typed and shown: permissions, KEY=VALUE, numbers, versions; names of the system."""

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from firearrow._native.protocol import name_rules
from firearrow.client.admin_api.records import READ, WRITE
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import DLQ, RETRY

PERMISSIONS = {"rw": READ | WRITE, "r": READ, "w": WRITE, "none": 0}
FIRST_VERSION = 213
"""Ordinal of V4_0_0 in Apache's MQVersion: two for each release, ten releases for each minor version."""


def perm_text(perm: int) -> str:
    return next((text for text, value in PERMISSIONS.items() if value == perm & (READ | WRITE)), str(perm))


def pairs(words: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` words. ConfigError: one is not of this form."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{word!r} must be KEY=VALUE")
        found[key] = value
    return found


def real(text: str | None) -> float | None:
    """A number that a broker reported as text; None: it reported none, or none that is finite."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def members(record: Any) -> dict[str, Any]:  # noqa: ANN401 (any dataclass)
    """The fields of a record by their names in JSON: `dueMs` of `due_ms`."""
    found: dict[str, Any] = {}
    for field in fields(record):
        first, *words = field.name.split("_")
        found[first + "".join(map(str.capitalize, words))] = getattr(record, field.name)
    return found


def version_text(ordinal: int) -> str:
    """`5.5.0` for an ordinal of Apache's MQVersion; the number if it is older than 4.0."""
    if ordinal < FIRST_VERSION:
        return str(ordinal)
    number = (ordinal - FIRST_VERSION) // 2
    return f"{4 + number // 100}.{number // 10 % 10}.{number % 10}"


def is_of_user(topic: str, system_topics: Iterable[str] = ()) -> bool:
    """Neither a system topic nor a retry or dead letter topic."""
    return not (name_rules.is_system_topic(topic) or topic.startswith((RETRY, DLQ)) or topic in system_topics)


def is_system_group(group: str) -> bool:
    return name_rules.is_system_group(group) or group == "TOOLS_PRODUCER"
