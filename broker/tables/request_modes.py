"""RequestModes: which consumer groups pop a topic instead of pulling it, and `messageRequestMode.json`.

Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import EACH, UnknownFields

PULL, POP = "PULL", "POP"
MODES_MAX = 100_000


class InvalidRequestMode(ValueError):
    """The table is full."""


class RequestMode(NamedTuple):
    """`share_queues`: how many other clients' queues a client pops as well; 0 or less: those of all."""

    topic: str
    group: str
    mode: str
    share_queues: int

    def to_object(self) -> dict[str, object]:
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.share_queues,
            "topic": self.topic,
        }

    @staticmethod
    def from_object(value: object) -> "RequestMode":
        """ValueError names the member that is wrong."""
        of = json_fields.members(value, "request mode")
        mode = json_fields.text(of, "mode", PULL)
        if mode not in (PULL, POP):
            raise ValueError(f"mode must be PULL or POP, not {mode[:64]}")
        return RequestMode(
            json_fields.text(of, "topic"),
            json_fields.text(of, "consumerGroup"),
            mode,
            json_fields.number(of, "popShareQueueNum", 0, low=-1 - json_fields.INT_MAX),
        )


FILE = {"messageRequestModeMap": {EACH: {EACH: dict.fromkeys(RequestMode("", "", PULL, 0).to_object())}}}
"""The members that this table knows."""


class RequestModes:
    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._table: dict[str, dict[str, RequestMode]] = {}
        self._count = 0
        self._unknown = UnknownFields("messageRequestMode.json", FILE)

    def get(self, topic: str, group: str) -> RequestMode | None:
        return self._table.get(topic, {}).get(group)

    def set(self, mode: RequestMode) -> None:
        """InvalidRequestMode when the table is full."""
        self._put(mode)
        self._changed()

    def to_object(self) -> dict[str, object]:
        return {
            "messageRequestModeMap": {
                topic: {group: mode.to_object() for group, mode in modes.copy().items()}
                for topic, modes in self._table.copy().items()
            }
        }

    def to_json(self) -> bytes:
        return pretty(self._unknown.merge_into(self.to_object()))

    def load(self, text: bytes) -> None:
        """Replace the table by the file's modes. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "messageRequestMode.json")
        table = json_fields.members_or_none(of.get("messageRequestModeMap"), "messageRequestModeMap")
        fresh = RequestModes()
        for modes in table.values():
            for mode in json_fields.members(modes, "messageRequestModeMap").values():
                fresh._put(RequestMode.from_object(mode))
        self._table, self._count = fresh._table, fresh._count
        self._unknown.collect(of)

    def _put(self, mode: RequestMode) -> None:
        known = self.get(mode.topic, mode.group)
        if known is None and self._count >= MODES_MAX:
            raise InvalidRequestMode(f"{self._count} request modes are set, at most {MODES_MAX}")
        self._count += known is None
        self._table.setdefault(mode.topic, {})[mode.group] = mode
