"""Attributes of topics and groups: parses changes `+key=value,-key` and applies them. Pure functions."""

from collections.abc import Callable, Mapping

PAIRS_MAX = 64
CHARS_MAX = 4096
DIGITS_MAX = 19
LONG_MAX = (1 << 63) - 1
MESSAGE_TYPE, LITE = "message.type", "LITE"
LITE_EXPIRATION = "lite.topic.expiration"
LITE_MINUTES_MAX = 30 * 24 * 60
LITE_TOPIC, LITE_MODEL, LITE_QUOTA = "lite.bind.topic", "lite.sub.model", "lite.sub.client.quota"
LITE_RESET_EXCLUSIVE, LITE_RESET_UNSUBSCRIBE = (
    "lite.sub.reset.offset.exclusive",
    "lite.sub.reset.offset.unsubscribe",
)

Check = Callable[[str], str | None]
"""Checks a value: returns the fault in Apache's words, None if there is none."""
Known = Mapping[str, tuple[bool, Check]]
"""Attribute → whether it may change after creation, and the check of its values."""


class InvalidAttribute(ValueError):
    """A change that is not allowed; the text names the key, in Apache's words."""


def _one_of(*values: str) -> Check:
    return lambda value: None if value in values else f"value is not in set: {value[:64]}"


def _number(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX):
            return f"value is not a number: {value[:64]}"
        return None if low <= int(value) <= high else f"value is not in range({low}, {high})"

    return check


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong."


def _no_wildcard(value: str) -> str | None:
    if value.lower() == "true":
        return "wildcard groups of lite topics are not supported by this broker"
    return _boolean(value)


TOPIC_ATTRIBUTES: Known = {
    "queue.type": (False, _one_of("SimpleCQ", "BatchCQ")),
    "cleanup.policy": (False, _one_of("DELETE", "COMPACTION")),
    MESSAGE_TYPE: (
        True,
        _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"),
    ),
    "reserve.time": (True, _number(-1, LONG_MAX)),
    LITE_EXPIRATION: (True, _number(-1, LITE_MINUTES_MAX)),
}
GROUP_ATTRIBUTES: Known = {
    "priority.factor": (True, _number(0, 100)),
    LITE_TOPIC: (True, lambda value: None),
    LITE_MODEL: (True, _one_of("Shared", "Exclusive")),
    LITE_RESET_EXCLUSIVE: (True, _boolean),
    LITE_RESET_UNSUBSCRIBE: (True, _boolean),
    LITE_QUOTA: (True, _number(-1, LONG_MAX)),
    "lite.sub.client.max.event.cnt": (
        True,
        lambda value: "this broker has no such limit: a client has one event of each of its lite topics",
    ),
    "lite.sub.wildcard": (True, _no_wildcard),
}


def number_of(attributes: Mapping[str, str], key: str, default: int) -> int:
    """The number that an attribute states; one that a file has otherwise counts as missing."""
    text = attributes.get(key, "")
    return default if _number(-LONG_MAX, LONG_MAX)(text) else int(text)


def parsed(text: str) -> dict[str, str]:
    """`+k=v,-k` → {"+k": "v", "-k": ""}. Raises InvalidAttribute."""
    if len(text) > CHARS_MAX:
        raise InvalidAttribute(f"attributes of {len(text)} characters, at most {CHARS_MAX}")
    changes: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = pair.partition("=")
        if equals and "+" not in key:
            raise InvalidAttribute(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise InvalidAttribute(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise InvalidAttribute(f"key duplication: {key}")
        changes[key] = value
    return changes


def apply_changes(
    known: Known, current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None at creation. InvalidAttribute."""
    if len(changes) > PAIRS_MAX:
        raise InvalidAttribute(f"{len(changes)} attributes, at most {PAIRS_MAX}")
    after = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise InvalidAttribute("kv string format wrong.")
        if key in seen:
            raise InvalidAttribute(f"alter duplication key. key: {key}")
        seen.add(key)
        _check_sign(current, sign, key)
        if key not in known:
            raise InvalidAttribute(f"unsupported key: {key}")
        changeable, check = known[key]
        if current is not None and not changeable:
            raise InvalidAttribute(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del after[key]
        elif fault := check(value):
            raise InvalidAttribute(fault)
        else:
            after[key] = value
    return after


def _check_sign(current: Mapping[str, str] | None, sign: str, key: str) -> None:
    if current is None and sign != "+":
        raise InvalidAttribute(f"only add attribute is supported while creating topic. key: {key}")
    if sign not in "+-":
        raise InvalidAttribute(f"wrong format key: {key}")
    if sign == "-" and current is not None and key not in current:
        raise InvalidAttribute(f"attempt to delete a nonexistent key: {key}")
