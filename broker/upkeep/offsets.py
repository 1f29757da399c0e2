"""How far the groups of a store are, by its config files. Reads only; any thread."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firearrow._native.store.files.errors import StoreUnreadable
from firearrow.broker.base import fastjson

FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
DIGITS_MAX = 10


def group_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """(Group, topic) → queue → the next offset to consume; of two files the newer one counts. StoreUnreadable."""
    paths = [Path(root, "config", name) for name in FILES]
    found: dict[tuple[str, str], dict[int, int]] = {}
    for path in sorted(paths, key=_changed_ns):
        whole = read_object(path)
        for key, queues in _member(whole, "offsetTable").items():
            topic, mark, group = str(key).partition("@")
            if mark and isinstance(queues, dict):
                found[group, topic] = {
                    int(queue): at for queue, at in queues.items() if _is_offset(queue, at)
                }
        for key, at in _member(whole, "lmqOffsetTable").items():
            topic, mark, group = str(key).partition("@")
            if mark and type(at) is int:
                found[group, topic] = {0: at}
    return found


def read_object(path: Path) -> Mapping[Any, Any]:
    """The object in a config file, or in its `.bak`; empty if there is neither. StoreUnreadable."""
    wrong = ""
    for each in (path, Path(f"{path}.bak")):
        try:
            value = fastjson.loads(each.read_bytes() or b"{}") if each.exists() else None
        except OSError as error:
            raise StoreUnreadable(f"{each} cannot be read: {error.strerror}") from None
        except fastjson.JsonError as error:
            wrong = wrong or f"{each} cannot be read: {error}"
            continue
        if isinstance(value, dict) and (value or each != path):
            return value
    if wrong:
        raise StoreUnreadable(wrong)
    return {}


def _member(whole: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _is_offset(queue: object, at: object) -> bool:
    text = str(queue)
    return text.isdecimal() and len(text) <= DIGITS_MAX and type(at) is int


def _changed_ns(path: Path) -> int:
    return os.stat(path).st_mtime_ns if path.exists() else 0
