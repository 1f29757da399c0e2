"""Names of topics and groups: validity, retry and dead-letter topics, namespace prefixes."""

import re
from collections.abc import Iterable

from firearrow._native.protocol import name_rules
from firearrow.client.base.errors import ConfigError

RETRY, DLQ = name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX
ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
RESERVED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})
NOT_FOR_SENDING = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)


def check_topic(topic: str) -> str:
    """Return the name. ConfigError: blank, too long, or with characters that brokers refuse."""
    return _check("topic", topic, name_rules.TOPIC_CHARS_MAX)


def check_stored_topic(topic: str) -> str:
    """As `check_topic`; or a retry topic of POP: brokers compose its name of a group and a topic, with `_` or `+`."""
    if isinstance(topic, str) and topic.startswith(RETRY):
        _check("topic", topic.replace("+", "_", 1), name_rules.RETRY_TOPIC_CHARS_MAX)
        return topic
    return check_topic(topic)


def check_group(group: str) -> str:
    if group in RESERVED_GROUPS:
        raise ConfigError(f"group {group} is reserved: choose another name")
    return _check("group", group, name_rules.GROUP_CHARS_MAX)


class Namespace:
    """Adds and removes the prefix `ns%`, which follows that of retry and dead-letter topics
    (`%RETRY%ns%group`).

    Without a name, names stay as they are.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name or ""
        self._prefix = f"{self.name}%"

    def wrap(self, resource: str) -> str:
        """The name as brokers know it. A name that has the prefix, and a system name, stay as they are."""
        if (
            not self.name
            or name_rules.is_system_topic(resource)
            or resource.startswith(name_rules.SYSTEM_GROUP_PREFIX)
        ):
            return resource
        kind, plain = _kind(resource)
        return resource if plain.startswith(self._prefix) else kind + self._prefix + plain

    def unwrap(self, resource: str) -> str:
        """The name as users know it."""
        if not self.name:
            return resource
        kind, plain = _kind(resource)
        return kind + plain.removeprefix(self._prefix)

    def has(self, resource: str) -> bool:
        """Whether the name, as brokers know it, is of this namespace, or of the system. Others have no user's name."""
        return self.wrap(resource) == resource


def _kind(resource: str) -> tuple[str, str]:
    for kind in (RETRY, DLQ):
        if resource.startswith(kind):
            return kind, resource[len(kind) :]
    return "", resource


def _check(what: str, name: str, chars_max: int) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{what} must be a name, not {name!r}")
    if len(name) > chars_max:
        raise ConfigError(f"{what} has {len(name)} characters, at most {chars_max} are allowed")
    if not ALLOWED.fullmatch(name):
        raise ConfigError(f"{what} {name!r}: only a to z, A to Z, digits, `%`, `|`, `_` and `-` are allowed")
    return name


def topic_table(texts: Iterable[str]) -> dict[str | None, str]:
    """The target topics of `NAME` and `SOURCE=NAME`, by source topic; None: for all others. ConfigError."""
    table: dict[str | None, str] = {}
    for text in texts:
        source, equals, name = text.rpartition("=")
        key = source if equals else None
        if not name or (equals and not source) or key in table:
            raise ConfigError(f"--to-topic: {text!r}; write NAME once, or SOURCE=NAME once for each topic")
        table[key] = name
    return table
