"""DelayOffsets: how far each delay level was delivered, and `delayOffset.json`.

Loop thread; `to_json` may run in another one.

Key: the level, from 1; value: the next offset of its queue in SCHEDULE_TOPIC_XXXX.
"""

from collections.abc import Callable

from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

VERSION_STEP = 200
"""Deliveries between two changes of the version (delayOffsetUpdateVersionStep)."""
LEVEL_MAX = 1 << 16
FILE = {"dataVersion": VERSION, "offsetTable": None}
"""The members that this table knows."""


class DelayOffsets:
    def __init__(self, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._changed = changed
        self._table: dict[int, int] = {}
        self._moves = 0
        self._unknown = UnknownFields("delayOffset.json", FILE)
        self.version = DataVersion(timestamp=clock.now_ms())

    def get(self, level: int) -> int:
        return self._table.get(level, 0)

    def knows(self, level: int) -> bool:
        return level in self._table

    def levels(self) -> list[tuple[int, int]]:
        """Level and offset of each that has one."""
        return sorted(self._table.items())

    def set(self, level: int, queue_offset: int) -> None:
        self._table[level] = queue_offset
        self._moves += 1
        if self._moves % VERSION_STEP == 0:
            self.version = self.version.next(self._clock.now_ms())
        self._changed()

    def to_object(self) -> dict[str, object]:
        return {"dataVersion": self.version.to_object(), "offsetTable": dict(self._table)}

    def to_json(self) -> bytes:
        return pretty(self._unknown.merge_into(self.to_object()))

    def load(self, text: bytes) -> None:
        """Replace the table by the file's offsets. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "delayOffset.json")
        version, self._table = _parsed(of)
        self._unknown.collect(of)
        self.version = version

    def take_over(self, text: bytes) -> int:
        """Take what a slave that acted in our place delivered; returns how many levels moved. None goes back.
        ValueError: nothing changed."""
        _, table = _parsed(json_fields.members(loads(text), "the slave's delayOffset.json"))
        moved = {level: offset for level, offset in table.items() if offset > self.get(level)}
        if moved:
            self._table |= moved
            self.version = self.version.next(self._clock.now_ms())
            self._changed()
        return len(moved)


def _parsed(of: json_fields.Members) -> tuple[DataVersion, dict[int, int]]:
    version = DataVersion.from_object(of.get("dataVersion", {}))
    table = json_fields.members_or_none(of.get("offsetTable"), "offsetTable")
    return version, {
        _level(level): json_fields.whole(offset, "offsetTable") for level, offset in table.items()
    }


def _level(key: object) -> int:
    level = json_fields.whole(key, "level")
    if not 1 <= level <= LEVEL_MAX:
        raise ValueError(f"offsetTable has level {level}")
    return level
