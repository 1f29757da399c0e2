"""ConsumerOrderInfo: what was popped in order and is not acknowledged yet, and `consumerOrderInfo.json`.

A queue gives nothing more to its group while something popped from it is invisible and not acknowledged, but to the
attempt that popped it. Loop thread; `to_json` may run in another one.

Openings: queues that what was popped in order blocks until a time; who waits for them is told then, without news.

Never tells early: a timer of the loop may run a millisecond before its time, and the wall clock, of which the times
are, may have been set back meanwhile. Loop thread.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.fastjson import loads, pretty
from firearrow.broker.pop.long_polling import Place
from firearrow.broker.pop.receipt_handles import mark_of
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import EACH, EACH_NUMBER, UnknownFields

EXPIRE_MS = 24 * 3_600_000
QUEUES_MAX = 200_000
OFFSETS_MAX = 64
"""Of one pop; the acknowledged are bits of a long."""
ATTEMPT_CHARS_MAX = 256

ILLEGAL, PASSED = -1, -2
"""`acked`: an offset that was not popped; an acknowledgement of an older pop."""


@dataclass(slots=True)
class OrderInfo:
    """One pop of one queue; `visible` holds offsets whose time was changed, `counts` how often they came before."""

    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    attempt: str | None
    used_ms: int
    acked: int = 0
    visible: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def visible_ms(self, offset: int) -> int:
        return self.visible.get(offset, self.pop_ms + self.invisible_ms)

    def waiting(self) -> list[int]:
        return [offset for n, offset in enumerate(self.offsets) if not self.acked >> n & 1]

    def next_offset(self) -> int:
        waiting = self.waiting()
        return waiting[0] if waiting else self.offsets[-1] + 1

    def count_again(self, before: "OrderInfo") -> None:
        """The same attempt changes nothing; what it popped before counts one more."""
        if before.attempt is not None and before.attempt == self.attempt:
            self.counts = before.counts
            return
        known = set(before.offsets)
        self.counts = {offset: before.counts.get(offset, 0) + 1 for offset in self.offsets if offset in known}

    def to_object(self) -> dict[str, object]:
        first = self.offsets[0]
        members: dict[str, object] = {
            "cm": self.acked - (1 << 64 if self.acked >> 63 else 0),
            "i": self.invisible_ms,
            "l": self.used_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "popTime": self.pop_ms,
        }
        if self.attempt is not None:
            members["a"] = self.attempt
        if self.visible:
            members["ot"] = dict(self.visible)
        members["oc"] = dict(self.counts)
        return members

    @staticmethod
    def from_object(value: object) -> "OrderInfo":
        """ValueError."""
        of = json_fields.members(value, "order info")
        listed = [json_fields.whole(one, "o") for one in json_fields.items(of.get("o"), "o")]
        if not 0 < len(listed) <= OFFSETS_MAX:
            raise ValueError(f"order info has {len(listed)} offsets")
        attempt = of.get("a")
        return OrderInfo(
            pop_ms=json_fields.number(of, "popTime", high=json_fields.LONG_MAX),
            invisible_ms=json_fields.number(of, "i", 0, high=json_fields.LONG_MAX),
            offsets=[listed[0], *(listed[0] + one for one in listed[1:])],
            attempt=None if attempt is None else json_fields.text(of, "a"),
            used_ms=json_fields.number(of, "l", 0, high=json_fields.LONG_MAX),
            acked=json_fields.number(of, "cm", 0, low=-json_fields.LONG_MAX - 1, high=json_fields.LONG_MAX)
            & (1 << 64) - 1,
            visible=_numbers(of, "ot"),
            counts=_numbers(of, "oc"),
        )


FILE = {
    **dict.fromkeys(("orderInfoCount", "orderedConsumptionLevel")),
    "table": {EACH: {EACH_NUMBER: dict.fromkeys(OrderInfo(0, 0, [0], "", 0, visible={0: 0}).to_object())}},
}
"""The members that we know."""


class ConsumerOrderInfo:
    """At most `queues_max` queues of groups; past them the one that was used longest ago is forgotten.

    `unlock_at(topic, group, queue, ms)` hears when a blocked queue opens by itself.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
        unlock_at: Callable[[str, str, int, int], None] = lambda topic, group, queue_id, ms: None,
        *,
        queues_max: int = QUEUES_MAX,
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._free_at = unlock_at
        self._queues_max = queues_max
        self._table: dict[tuple[str, str, int], OrderInfo] = {}
        self._unknown = UnknownFields("consumerOrderInfo.json", FILE)

    def __len__(self) -> int:
        return len(self._table)

    def blocked(self, topic: str, group: str, queue_id: int, attempt: str | None, invisible_ms: int) -> bool:
        order = self._table.get((topic, group, queue_id))
        if order is None or (order.attempt is not None and order.attempt == attempt):
            return False
        if order.invisible_ms <= 0:
            order.invisible_ms = invisible_ms
        now = self._clock.now_ms()
        return any(now < order.visible_ms(offset) for offset in order.waiting())

    def update(
        self,
        topic: str,
        group: str,
        queue_id: int,
        attempt: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: list[int],
    ) -> str:
        """Note a pop; how often its messages came before, as the answer tells it."""
        key = topic, group, queue_id
        attempt = None if attempt is None else attempt[:ATTEMPT_CHARS_MAX]
        order = OrderInfo(pop_ms, invisible_ms, offsets[:OFFSETS_MAX], attempt, self._clock.now_ms())
        before = self._drop(key)
        if before is not None:
            order.count_again(before)
        elif len(self._table) >= self._queues_max:
            self._drop(next(iter(self._table)))
        self._table[key] = order
        self._note(key, order)
        mark = mark_of(topic)
        words = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in order.counts.items()]
        least = min(order.counts.values(), default=0) if len(order.counts) == len(order.offsets) else 0
        return ";".join([*words, f"{mark} {queue_id} {least}"])

    def acked(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int) -> int:
        """The offset up to which the queue is done; ILLEGAL or PASSED."""
        key = topic, group, queue_id
        order = self._table.get(key)
        if order is None:
            return offset + 1
        if pop_ms != order.pop_ms:
            return PASSED
        if offset not in order.offsets:
            return ILLEGAL
        order.acked |= 1 << order.offsets.index(offset)
        self._note(key, order)
        return order.next_offset()

    def change_visible(
        self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, visible_ms: int
    ) -> None:
        """One popped message is to be invisible until then; nothing happens if it is of an older pop."""
        key = topic, group, queue_id
        order = self._table.get(key)
        if order is not None and order.pop_ms == pop_ms and offset in order.offsets:
            order.visible[offset] = visible_ms
            self._note(key, order)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        if self._drop((topic, group, queue_id)) is not None:
            self._changed()

    def sweep(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Forget what was not used for a day, or lost its topic or group."""
        oldest = self._clock.now_ms() - EXPIRE_MS
        gone = [
            key
            for key, order in self._table.items()
            if order.used_ms < oldest or key[0] not in topics or key[1] not in groups
        ]
        for key in gone:
            self._drop(key)
        if gone:
            self._changed()

    # --- the file ---

    def to_json(self) -> bytes:
        table: dict[str, dict[int, dict[str, object]]] = {}
        for (topic, group, queue_id), order in dict(self._table).items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = order.to_object()
        head = {"orderInfoCount": len(table), "orderedConsumptionLevel": "QUEUE"}
        return pretty(self._unknown.merge_into({**head, "table": table}))

    def load(self, text: bytes) -> None:
        """Take the file's for ours. ValueError: nothing was taken."""
        of = json_fields.members(loads(text), "consumerOrderInfo.json")
        table: dict[tuple[str, str, int], OrderInfo] = {}
        for key, queues in json_fields.members_or_none(of.get("table"), "table").items():
            topic, at, group = str(key).partition("@")
            if not at:
                raise ValueError(f"table has a key without @: {str(key)[:64]}")
            for queue_id, order in json_fields.members(queues, "table").items():
                table[topic, group, json_fields.whole(queue_id, "queueId")] = OrderInfo.from_object(order)
        self._table = dict(list(table.items())[: self._queues_max])
        self._unknown.collect(of)
        for key, order in self._table.items():
            self._opens(key, order)

    def _drop(self, key: tuple[str, str, int]) -> OrderInfo | None:
        """What is unknown of a pop says nothing of the next one."""
        topic, group, queue_id = key
        self._unknown.forget("table", f"{topic}@{group}", queue_id)
        return self._table.pop(key, None)

    def _note(self, key: tuple[str, str, int], order: OrderInfo) -> None:
        self._changed()
        self._opens(key, order)

    def _opens(self, key: tuple[str, str, int], order: OrderInfo) -> None:
        waiting = order.waiting()
        if waiting:
            self._free_at(*key, max(order.visible_ms(offset) for offset in waiting))


def _numbers(of: json_fields.Members, name: str) -> dict[int, int]:
    found = json_fields.members_or_none(of.get(name), name)
    return {
        json_fields.whole(key, name): json_fields.whole(value, name)
        for key, value in list(found.items())[:OFFSETS_MAX]
    }


class OrderUnlockTimer:
    """`opened(place)` runs once for each time given to `at`, unless a later call gave that place another one."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, opened: Callable[[Place], None], count_max: int
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._opened = opened
        self._count_max = count_max
        self._timers: dict[Place, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def at(self, place: Place, at_ms: int) -> None:
        """Past the most places nobody is told: who waits tries again at his deadline."""
        before = self._timers.pop(place, None)
        if before is not None:
            before.cancel()
        if len(self._timers) < self._count_max:
            self._arm(place, at_ms)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, place: Place, at_ms: int) -> None:
        seconds = max(at_ms - self._clock.now_ms(), 0) / 1000
        self._timers[place] = self._loop.call_later(seconds, self._due, place, at_ms)

    def _due(self, place: Place, at_ms: int) -> None:
        del self._timers[place]
        if self._clock.now_ms() < at_ms:
            self._arm(place, at_ms)
        else:
            self._opened(place)
