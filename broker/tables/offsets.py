"""ConsumerOffsets: how far each group has consumed each queue, and `consumerOffset.json`.

All offsets are queue offsets. Resets that wait for their group's next pull live in memory only.
Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Collection, Mapping

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.fastjson import loads, pretty
from firearrow.broker.tables import json_fields, name_rules
from firearrow.broker.tables.config_file import VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

FILE = {
    "dataVersion": VERSION,
    **dict.fromkeys(("groupTopicMap", "lmqOffsetTable", "offsetTable", "pullOffsetTable")),
}
"""The members that we know."""
QUEUE_ID_MAX = 65_535
Offsets = dict[int, int]
Noted = Callable[[str, int, int, int], None]
"""`topic@group`, queue and offset, which counts once the log reaches `end`; queue -1: all its offsets are gone."""


class InvalidOffset(ValueError):
    """A commit that may not be; the text names the field."""


def queue_id_fault(queue_id: int) -> str | None:
    """What is wrong with a queue's number; None if nothing is."""
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        return f"queueId must be 0 to {QUEUE_ID_MAX}, not {queue_id}"
    return None


class ConsumerOffsets:
    """At most `queues_max` queues of groups are kept; `version` moves once in `version_step` commits.

    `is_lmq_enabled`: the file is `lmqConsumerOffset.json`, which has the offsets of groups with %LMQ% in front apart.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        version_step: int = 500,
        queues_max: int = 2_000_000,
        changed: Callable[[Collection[str]], None] = lambda groups: None,
        on_commit: Noted = lambda key, queue_id, queue_offset, end: None,
        is_lmq_enabled: bool = False,
    ) -> None:
        self._clock = clock
        self._version_step = version_step
        self._queues_max = queues_max
        self._changed = changed
        self._noted = on_commit
        self._table: dict[str, Offsets] = {}
        self._topics: dict[str, set[str]] = {}
        self._groups: dict[str, set[str]] = {}
        self._count = 0
        self._commits = 0
        self._resets: dict[tuple[str, str, int], int] = {}
        self._pulls: dict[str, Offsets] = {}
        self._pull_count = 0
        self._lights = is_lmq_enabled
        self._unknown = UnknownFields("consumerOffset.json", FILE)
        self.version = DataVersion(timestamp=clock.now_ms())

    def __len__(self) -> int:
        """Queues of groups that have an offset."""
        return self._count

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, end: int = 0) -> None:
        """Store it as given, backwards too; after a crash it counts if the log reaches `end`. InvalidOffset."""
        self._set(group, topic, queue_id, queue_offset, end)
        self.counted(group)

    @property
    def table(self) -> Mapping[str, Offsets]:
        """`topic@group` → queue → offset. A view that stays true; who changes an offset in it notes that, and says
        `counted`."""
        return self._table

    def counted(self, group: str) -> None:
        """One more commit of the group is in the table."""
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.version = self.version.next(self._clock.now_ms())
        self._changed((group,))

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to consume, a waiting reset first; -1 if there is none."""
        waiting = self._resets.get((group, topic, queue_id))
        return self.committed(group, topic, queue_id) if waiting is None else waiting

    def committed(self, group: str, topic: str, queue_id: int) -> int:
        return self._table.get(f"{topic}@{group}", {}).get(queue_id, -1)

    def of(self, group: str, topic: str) -> Offsets | None:
        """Queue → offset, a copy; None if the group never committed for the topic."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else dict(queues)

    def topics_of(self, group: str) -> list[str]:
        return sorted(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        return sorted(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give `target` the offsets of `source` for the topic."""
        for queue_id, queue_offset in (self.of(source, topic) or {}).items():
            self._set(target, topic, queue_id, queue_offset)
        self._changed((target,))

    def remove_topic(self, topic: str) -> None:
        self._remove([(group, topic) for group in self.groups_of(topic)])

    def remove_group(self, group: str) -> None:
        self._remove([(group, topic) for topic in self.topics_of(group)])

    def bound(self, end_of: Callable[[str, int], int]) -> int:
        """After a power cut no offset may stand behind its queue's end: messages put there next would be passed over.
        `end_of(topic, queue)`; how many offsets were taken back."""
        ahead = [
            (group, topic, queue_id, end_of(topic, queue_id))
            for topic, groups in self._groups.items()
            for group in groups
            for queue_id, queue_offset in self._table[f"{topic}@{group}"].items()
            if queue_offset > end_of(topic, queue_id)
        ]
        for group, topic, queue_id, end in ahead:
            self._set(group, topic, queue_id, end)
        if ahead:
            self._changed({group for group, *_ in ahead})
        return len(ahead)

    # --- resets on the server's side ---

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group's next pull of the queue starts there; commits are ignored until then. InvalidOffset."""
        self._set(group, topic, queue_id, queue_offset)
        self._resets[group, topic, queue_id] = queue_offset
        self._changed((group,))

    @property
    def resets(self) -> Mapping[tuple[str, str, int], int]:
        """Those that wait: (group, topic, queue) → offset. A view that stays true."""
        return self._resets

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The waiting reset, which is gone afterwards."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    # --- where groups pull (inspection only) ---

    def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Nothing is noted past the bounds."""
        queues = self._pulls.get(f"{topic}@{group}")
        if queues is None or queue_id not in queues:
            if self._pull_count >= self._queues_max or not 0 <= queue_id <= QUEUE_ID_MAX:
                return
            self._pull_count += 1
            queues = self._pulls.setdefault(f"{topic}@{group}", {})
        queues[queue_id] = queue_offset

    def pulls_of(self, group: str, topic: str) -> Offsets | None:
        """Queue → the offset noted last, to be changed where there is one; None: nothing was noted yet."""
        return self._pulls.get(f"{topic}@{group}")

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """-1 if the group never pulled the queue."""
        return self._pulls.get(f"{topic}@{group}", {}).get(queue_id, -1)

    # --- the file ---

    def to_object(self) -> dict[str, object]:
        table, pulls, topics = dict(self._table), dict(self._pulls), dict(self._topics)
        is_lmq_enabled = {
            key: queues[0] for key, queues in table.items() if self._lights and _is_lmq(key, queues)
        }
        members: dict[str, object] = {
            "dataVersion": self.version.to_object(),
            "groupTopicMap": {g: sorted(names.copy()) for g, names in topics.items() if "@" not in g},
            "offsetTable": {key: dict(queues) for key, queues in table.items() if key not in is_lmq_enabled},
            "pullOffsetTable": {key: dict(queues) for key, queues in pulls.items()},
        }
        if self._lights:
            members["lmqOffsetTable"] = is_lmq_enabled
        return members

    def to_json(self) -> bytes:
        return pretty(self._unknown.merge_into(self.to_object()))

    def load(self, text: bytes) -> None:
        """Take the file's offsets for ours. ValueError: nothing was taken."""
        of = json_fields.members(loads(text), "consumerOffset.json")
        version = DataVersion.from_object(of.get("dataVersion", {}))
        table, pulls = _queues(of, "offsetTable"), _queues(of, "pullOffsetTable")
        is_lmq_enabled = json_fields.members_or_none(of.get("lmqOffsetTable"), "lmqOffsetTable")
        table |= {
            _pair(key): {0: json_fields.number(is_lmq_enabled, key, high=json_fields.LONG_MAX)}
            for key in is_lmq_enabled
        }
        self._table.clear()
        self._topics, self._groups, self._count = {}, {}, 0
        self._pulls = {f"{topic}@{group}": queues for (group, topic), queues in pulls.items()}
        self._pull_count = sum(map(len, pulls.values()))
        for (group, topic), queues in table.items():
            self._index(group, topic)[f"{topic}@{group}"] = queues
            self._count += len(queues)
        self._unknown.collect(of)
        self.version = version

    def restore(self, key: str, queue_id: int, queue_offset: int) -> None:
        """What was noted after the file was written, and is not noted again; the file is to hold it before the
        journal lets it go."""
        group, topic = _pair(key)
        if queue_id >= 0:
            self._set(group, topic, queue_id, queue_offset, note=False)
            self._changed((group,))
        elif key in self._table:
            self._remove([(group, topic)], note=False)

    def _set(
        self, group: str, topic: str, queue_id: int, queue_offset: int, end: int = 0, note: bool = True
    ) -> None:
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None or queue_id not in queues:
            queues = self._begin(group, topic, queue_id)
        if queues.get(queue_id) != queue_offset:
            queues[queue_id] = queue_offset
            if note:
                self._noted(key, queue_id, queue_offset, end)

    def _begin(self, group: str, topic: str, queue_id: int) -> Offsets:
        """Room for a queue's first offset. InvalidOffset."""
        fault = queue_id_fault(queue_id)
        if fault is not None:
            raise InvalidOffset(fault)
        if self._count >= self._queues_max:
            raise InvalidOffset(f"offsets of {self._count} queues are kept, at most {self._queues_max}")
        self._count += 1
        return self._index(group, topic).setdefault(f"{topic}@{group}", {})

    def _index(self, group: str, topic: str) -> dict[str, Offsets]:
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)
        return self._table

    def _remove(self, pairs: list[tuple[str, str]], note: bool = True) -> None:
        gone = set(pairs)
        for group, topic in pairs:
            self._count -= len(self._table.pop(f"{topic}@{group}"))
            if note:
                self._noted(f"{topic}@{group}", -1, -1, 0)
            _drop(self._topics, group, topic)
            _drop(self._groups, topic, group)
        for key in [key for key in self._resets if key[:2] in gone]:
            del self._resets[key]
        for group, topic in pairs:
            self._pull_count -= len(self._pulls.pop(f"{topic}@{group}", ()))
        if pairs:
            self._changed([group for group, _ in pairs])


def _is_lmq(key: str, queues: Offsets) -> bool:
    """Offsets of a group with %LMQ% in front, which has one for a topic."""
    return f"@{name_rules.LMQ_PREFIX}" in key and queues.keys() == {0}


def _drop(index: dict[str, set[str]], key: str, item: str) -> None:
    index[key].discard(item)
    if not index[key]:
        del index[key]


def _pair(key: object) -> tuple[str, str]:
    """`topic@group` → (group, topic); a topic has no `@`, a group may (`G@broadcast`)."""
    topic, at, group = str(key).partition("@")
    if not at:
        raise ValueError(f"offsetTable has a key without @: {str(key)[:64]}")
    return group, topic


def _queues(of: json_fields.Members, name: str) -> dict[tuple[str, str], Offsets]:
    table = json_fields.members_or_none(of.get(name), name)
    return {
        _pair(key): {
            _queue_id(queue): json_fields.whole(at, name)
            for queue, at in json_fields.members(queues, name).items()
        }
        for key, queues in table.items()
    }


def _queue_id(key: object) -> int:
    number = json_fields.whole(key, "queueId")
    fault = queue_id_fault(number)
    if fault is not None:
        raise ValueError(fault)
    return number
