"""What was popped in order and is not acknowledged yet, and `consumerOrderInfo.json`. Loop thread.

While a message popped in order is invisible and not acknowledged, its queue is blocked for the group: only
the attempt that popped it may pop again. `OrderUnlockTimer` retries held pops when a blocked queue becomes
free by time, since no message arrives then. It never fires early: it checks the wall clock again, because a
timer of the event loop may run a millisecond early and the wall clock may have been set back.
`ConsumerOrderInfo.to_json` may run in another thread.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from firearrow._native.protocol.fastjson import loads, pretty
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.pop.long_polling import HoldKey
from firearrow.broker.pop.receipt_handles import kind_of
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import EACH, EACH_NUMBER, UnknownFields

EXPIRE_MS = 24 * 3_600_000
QUEUES_MAX = 200_000
OFFSETS_MAX = 64
"""Per pop: acknowledged offsets are bits of a long."""
ATTEMPT_CHARS_MAX = 256

ILLEGAL, PASSED = -1, -2
"""Results of `ConsumerOrderInfo.acked`: the offset was not popped; the acknowledgement is of an older pop."""


@dataclass(slots=True)
class OrderInfo:
    """The last pop of one queue.

    `visible`: when offsets with a changed invisible time are visible, in ms. `counts`: how often an offset
    was popped before.
    """

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

    def unacked(self) -> list[int]:
        return [offset for n, offset in enumerate(self.offsets) if not self.acked >> n & 1]

    def next_offset(self) -> int:
        unacked = self.unacked()
        return unacked[0] if unacked else self.offsets[-1] + 1

    def count_again(self, previous: "OrderInfo") -> None:
        """Count offsets that the previous pop had as well; a repeated attempt keeps its counts."""
        if previous.attempt is not None and previous.attempt == self.attempt:
            self.counts = previous.counts
            return
        known = set(previous.offsets)
        self.counts = {
            offset: previous.counts.get(offset, 0) + 1 for offset in self.offsets if offset in known
        }

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
        """Raises ValueError."""
        fields = json_fields.members(value, "order info")
        listed = [json_fields.whole(one, "o") for one in json_fields.items(fields.get("o"), "o")]
        if not 0 < len(listed) <= OFFSETS_MAX:
            raise ValueError(f"order info has {len(listed)} offsets")
        attempt = fields.get("a")
        return OrderInfo(
            pop_ms=json_fields.number(fields, "popTime", high=json_fields.LONG_MAX),
            invisible_ms=json_fields.number(fields, "i", 0, high=json_fields.LONG_MAX),
            offsets=[listed[0], *(listed[0] + one for one in listed[1:])],
            attempt=None if attempt is None else json_fields.text(fields, "a"),
            used_ms=json_fields.number(fields, "l", 0, high=json_fields.LONG_MAX),
            acked=json_fields.number(
                fields, "cm", 0, low=-json_fields.LONG_MAX - 1, high=json_fields.LONG_MAX
            )
            & (1 << 64) - 1,
            visible=_numbers(fields, "ot"),
            counts=_numbers(fields, "oc"),
        )


FILE = {
    **dict.fromkeys(("orderInfoCount", "orderedConsumptionLevel")),
    "table": {EACH: {EACH_NUMBER: dict.fromkeys(OrderInfo(0, 0, [0], "", 0, visible={0: 0}).to_object())}},
}
"""The members that this version knows; others are kept as they are."""


def attempt_of(request: RemotingCommand) -> str | None:
    """The attempt of a pop, of which no more is kept or compared; None: it has none."""
    return request.text_or("attemptId", "")[:ATTEMPT_CHARS_MAX] or None


class ConsumerOrderInfo:
    """Keeps at most `queues_max` queues of groups and drops the oldest entry beyond that.

    `unlock_at(topic, group, queue, ms)` is called with the time at which a blocked queue becomes free by
    itself.
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
        self._unlock_at = unlock_at
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
        return any(now < order.visible_ms(offset) for offset in order.unacked())

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
        """Record a pop; return how often its messages were popped before, in the form of `orderCountInfo`."""
        order = self.popped(topic, group, queue_id, attempt, pop_ms, invisible_ms, offsets)
        kind = kind_of(topic)
        counts = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in order.counts.items()]
        least = min(order.counts.values(), default=0) if len(order.counts) == len(order.offsets) else 0
        return ";".join([*counts, f"{kind} {queue_id} {least}"])

    def popped(
        self,
        topic: str,
        group: str,
        queue_id: int,
        attempt: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: list[int],
    ) -> OrderInfo:
        """Record a pop."""
        key = topic, group, queue_id
        order = OrderInfo(pop_ms, invisible_ms, offsets[:OFFSETS_MAX], attempt, self._clock.now_ms())
        previous = self._drop(key)
        if previous is not None:
            order.count_again(previous)
        elif len(self._table) >= self._queues_max:
            self._drop(next(iter(self._table)))
        self._table[key] = order
        self._note(key, order)
        return order

    def knows(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether the last pop of the queue is known; after a kill it may not be."""
        return (topic, group, queue_id) in self._table

    def acked(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int) -> int:
        """Acknowledge one offset; return the queue's next offset to consume, or ILLEGAL or PASSED."""
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
        """Make one popped message invisible until `visible_ms`; ignored if it is of an older pop."""
        key = topic, group, queue_id
        order = self._table.get(key)
        if order is not None and order.pop_ms == pop_ms and offset in order.offsets:
            order.visible[offset] = visible_ms
            self._note(key, order)

    def suspend(self, topic: str, group: str, queue_id: int, pop_ms: int, visible_ms: int) -> None:
        """Make all messages of this pop invisible until `visible_ms`, without counting that as a delivery; ignored if
        it is an older one."""
        key = topic, group, queue_id
        order = self._table.get(key)
        if order is not None and order.pop_ms == pop_ms:
            order.counts = {offset: max(count - 1, 0) for offset, count in order.counts.items()}
            order.visible.clear()
            order.invisible_ms = visible_ms - pop_ms
            self._note(key, order)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        if self._drop((topic, group, queue_id)) is not None:
            self._changed()

    def of(self, group: str) -> list[tuple[str, int, OrderInfo]]:
        """Topic, queue and last pop of each queue that the group popped in order."""
        return [(key[0], key[2], order) for key, order in self._table.items() if key[1] == group]

    def sweep(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Drop entries that were not used for a day, or whose topic or group no longer exists."""
        oldest = self._clock.now_ms() - EXPIRE_MS
        dropped = [
            key
            for key, order in self._table.items()
            if order.used_ms < oldest or key[0] not in topics or key[1] not in groups
        ]
        for key in dropped:
            self._drop(key)
        if dropped:
            self._changed()

    # ---- the file ----

    def to_json(self) -> bytes:
        table: dict[str, dict[int, dict[str, object]]] = {}
        for (topic, group, queue_id), order in dict(self._table).items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = order.to_object()
        head = {"orderInfoCount": len(table), "orderedConsumptionLevel": "QUEUE"}
        return pretty(self._unknown.merge_into({**head, "table": table}))

    def load(self, text: bytes) -> None:
        """Replace the table with the file's content. Raises ValueError and then changes nothing."""
        fields = json_fields.members(loads(text), "consumerOrderInfo.json")
        table: dict[tuple[str, str, int], OrderInfo] = {}
        for key, queues in json_fields.members_or_none(fields.get("table"), "table").items():
            topic, at, group = str(key).partition("@")
            if not at:
                raise ValueError(f"table has a key without @: {str(key)[:64]}")
            for queue_id, order in json_fields.members(queues, "table").items():
                table[topic, group, json_fields.whole(queue_id, "queueId")] = OrderInfo.from_object(order)
        self._table = dict(list(table.items())[: self._queues_max])
        self._unknown.collect(fields)
        for key, order in self._table.items():
            self._set_unlock_time(key, order)

    def _drop(self, key: tuple[str, str, int]) -> OrderInfo | None:
        """Remove the entry, and the unknown members of the file that belonged to it."""
        topic, group, queue_id = key
        self._unknown.forget("table", f"{topic}@{group}", queue_id)
        return self._table.pop(key, None)

    def _note(self, key: tuple[str, str, int], order: OrderInfo) -> None:
        self._changed()
        self._set_unlock_time(key, order)

    def _set_unlock_time(self, key: tuple[str, str, int], order: OrderInfo) -> None:
        unacked = order.unacked()
        if unacked:
            self._unlock_at(*key, max(order.visible_ms(offset) for offset in unacked))


def _numbers(fields: json_fields.Members, name: str) -> dict[int, int]:
    found = json_fields.members_or_none(fields.get(name), name)
    return {
        json_fields.whole(key, name): json_fields.whole(value, name)
        for key, value in list(found.items())[:OFFSETS_MAX]
    }


class OrderUnlockTimer:
    """Calls `unlocked(key)` once for each time set with `at`, unless a later call changed that key's time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        unlocked: Callable[[HoldKey], None],
        count_max: int,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._unlocked = unlocked
        self._count_max = count_max
        self._timers: dict[HoldKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def at(self, key: HoldKey, at_ms: int) -> None:
        """Beyond `count_max` keys no timer is set: pops held on them run again at their deadline."""
        previous = self._timers.pop(key, None)
        if previous is not None:
            previous.cancel()
        if len(self._timers) < self._count_max:
            self._arm(key, at_ms)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, key: HoldKey, at_ms: int) -> None:
        seconds = max(at_ms - self._clock.now_ms(), 0) / 1000
        self._timers[key] = self._loop.call_later(seconds, self._due, key, at_ms)

    def _due(self, key: HoldKey, at_ms: int) -> None:
        del self._timers[key]
        if self._clock.now_ms() < at_ms:
            self._arm(key, at_ms)
        else:
            self._unlocked(key)
