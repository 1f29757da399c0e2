"""KvTable: namespace → key → value, the name server's small store (`kvConfig.json`). Loop thread."""

from collections.abc import Callable, Mapping

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables.config_file import UnknownFields

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of the order topics: topic → `brokerName:queues;…`."""

ENTRIES_MAX = 10_000
NAME_CHARS_MAX = 255
VALUE_CHARS_MAX = 65_536
TOTAL_CHARS_MAX = 4 << 20
"""One body has to hold all keys and values of a namespace."""


class KvTable:
    """`changed()` is called after each change: the file has to be written."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._table: dict[str, dict[str, str]] = {}
        self._entries = 0
        self._chars = 0
        self._unknown = UnknownFields("kvConfig.json", {"configTable": None})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Refusal (SYSTEM_ERROR) when a limit is reached."""
        self._put(namespace, key, value)
        self._changed()

    def delete(self, namespace: str, key: str) -> None:
        """The last key of a namespace leaves an empty one, as with Apache."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._entries -= 1
            self._chars -= len(key) + len(value)
            self._changed()

    def to_json(self) -> bytes:
        """The file's text; may run in another thread."""
        table = {name: dict(keys) for name, keys in self._table.copy().items()}
        return fastjson.dumps(self._unknown.merge_into({"configTable": table}))

    def load(self, text: bytes) -> None:
        """Replace the table by the file's entries. ValueError: nothing changed."""
        document = fastjson.loads(text)
        table = document.get("configTable") if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ValueError("configTable is missing")
        fresh = KvTable(lambda: None)
        try:
            for namespace, keys in table.items():
                if not isinstance(keys, dict):
                    raise ValueError("a namespace of configTable is not an object")
                fresh._table.setdefault(str(namespace), {})
                for key, value in keys.items():
                    fresh._put(str(namespace), str(key), str(value))
        except Refusal as refusal:
            raise ValueError(refusal.remark) from None
        self._table, self._entries, self._chars = fresh._table, fresh._entries, fresh._chars
        self._unknown.collect(document)

    def _put(self, namespace: str, key: str, value: str) -> None:
        _check_range(len(namespace), 1, NAME_CHARS_MAX, "the length of namespace")
        _check_range(len(key), 1, NAME_CHARS_MAX, "the length of key")
        _check_range(len(value), 0, VALUE_CHARS_MAX, "the length of value")
        known = self.get(namespace, key)
        entries = self._entries + (known is None)
        chars = self._chars + len(value) + (len(key) if known is None else -len(known))
        _check_range(entries, 0, ENTRIES_MAX, "the number of entries")
        _check_range(chars, 0, TOTAL_CHARS_MAX, "the size of all entries")
        self._table.setdefault(namespace, {})[key] = value
        self._entries, self._chars = entries, chars


def _check_range(number: int, low: int, high: int, what: str) -> None:
    if not low <= number <= high:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{what} is {number}, it must be {low} to {high}")
