"""ConsumerOffsets: how far each group has consumed each queue, and `consumerOffset.json`.

All offsets are queue offsets. Resets that wait for their group's next pull are in memory only.
Loop thread; `to_json` and `pieces` may run in another one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import orjson

from firearrow._native.base.offset_text import OffsetLines
from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

FILE = {
    "dataVersion": VERSION,
    **dict.fromkeys(("groupTopicMap", "lmqOffsetTable", "offsetTable", "pullOffsetTable")),
}
"""The members that this table knows."""
PIECE_OFFSETS = 2048
"""Offsets in one piece of the file's text: some 200 us, in which no other thread runs."""
QUEUE_ID_MAX = 65_535
Offsets = dict[int, int]
OnCommit = Callable[[str, int, int, int], None]
"""(`topic@group`, queue, offset, end): valid once the log reaches `end`; queue -1: all are removed."""


class InvalidOffset(ValueError):
    """A commit that is not allowed; the text names the field."""


def queue_id_fault(queue_id: int) -> str | None:
    """The fault of a queue's id; None if it is valid."""
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        return f"queueId must be 0 to {QUEUE_ID_MAX}, not {queue_id}"
    return None


class FollowedOffsets(NamedTuple):
    """A master's: queue → offset by (group, topic)."""

    version: DataVersion
    table: dict[tuple[str, str], Offsets]
    pulls: dict[tuple[str, str], Offsets]


def followed_offsets(of: json_fields.Members) -> FollowedOffsets:
    """Of the body of `consumerOffset.json`. ValueError. Any thread."""
    version = DataVersion.from_object(of.get("dataVersion", {}))
    table, pulls = _queues(of, "offsetTable"), _queues(of, "pullOffsetTable")
    lmq = json_fields.members_or_none(of.get("lmqOffsetTable"), "lmqOffsetTable")
    table |= {_pair(key): {0: json_fields.number(lmq, key, high=json_fields.LONG_MAX)} for key in lmq}
    return FollowedOffsets(version, table, pulls)


class ConsumerOffsets:
    """Keeps at most `queues_max` offsets, one for each queue of a group; `version` changes every
    `version_step` commits.

    `is_lmq_enabled`: the file is `lmqConsumerOffset.json`, with a separate table for groups that start with
    %LMQ%.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        version_step: int = 500,
        queues_max: int = 2_000_000,
        changed: Callable[[Collection[str]], None] = lambda groups: None,
        on_commit: OnCommit = lambda key, queue_id, queue_offset, end: None,
        is_lmq_enabled: bool = False,
    ) -> None:
        self._clock = clock
        self.version_step = version_step
        self._queues_max = queues_max
        self._changed = changed
        self._on_commit = on_commit
        self._table: dict[str, Offsets] = {}
        self._topics: dict[str, set[str]] = {}
        self._groups: dict[str, set[str] | frozenset[str]] = {}
        self._alone: dict[str, frozenset[str]] = {}
        """Group → the set of it alone, which all topics share that no other group reads: there may be a million."""
        self._count = 0
        self.commits = 0
        self._resets: dict[tuple[str, str, int], int] = {}
        self._pulls: dict[str, Offsets] = {}
        self._pull_count = 0
        self._is_lmq_enabled = is_lmq_enabled
        self._unknown = UnknownFields("consumerOffset.json", FILE)
        self.version = DataVersion(timestamp=clock.now_ms())
        self.not_here = ""
        """Why what clients commit here would be lost; empty: it is kept."""

    def __len__(self) -> int:
        """The number of offsets: queues of all groups that have one."""
        return self._count

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int, end: int = 0) -> None:
        """Store the offset, even a lower one; after a crash it is valid if the log reaches `end`.
        InvalidOffset."""
        self.counted(group, self._set(group, topic, queue_id, queue_offset, end))

    @property
    def table(self) -> Mapping[str, Offsets]:
        """`topic@group` → queue → offset. A live view: code that changes an offset in it has to note it in
        the journal and call `counted`."""
        return self._table

    @property
    def pull_table(self) -> Mapping[str, Offsets]:
        """`topic@group` → queue → offset of the last pull. A live view."""
        return self._pulls

    def counted(self, group: str, moved: bool = True) -> None:
        """Count a commit of the group that is in the table already. `moved`: it changed the offset; clients repeat
        what they committed every few seconds, and that needs no new file."""
        self.commits += 1
        if self.commits % self.version_step == 0:
            self.version = self.version.next(self._clock.now_ms())
        if moved:
            self._changed((group,))

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to consume: of a pending reset, else the committed one; -1 if there is none."""
        reset = self._resets.get((group, topic, queue_id))
        return self.committed(group, topic, queue_id) if reset is None else reset

    def committed(self, group: str, topic: str, queue_id: int) -> int:
        return self._table.get(f"{topic}@{group}", {}).get(queue_id, -1)

    def of(self, group: str, topic: str) -> Offsets | None:
        """Queue → offset, a copy; None if the group has no offsets of the topic."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else dict(queues)

    def queues_behind(self, group: str, topic: str, read_queues: int) -> list[int]:
        """Queues that count for the group's lag, as in the metrics: those that can be read, and those with an offset
        of the group that were taken away from the topic: what is left in them is unread all the same."""
        known = self._table.get(f"{topic}@{group}", {})
        return [*range(read_queues), *sorted(queue_id for queue_id in known if queue_id >= read_queues)]

    def groups(self) -> list[str]:
        """Those that have an offset, in no order."""
        return list(self._topics)

    def topics_of(self, group: str) -> list[str]:
        return sorted(self._topics.get(group, ()))

    def topics_now(self, group: str) -> list[str]:
        """Those of which the group has an offset, in no order: there may be a million."""
        return list(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        return sorted(self._groups.get(topic, ()))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of group `source` for the topic to group `target`."""
        for queue_id, queue_offset in (self.of(source, topic) or {}).items():
            self._set(target, topic, queue_id, queue_offset)
        self._changed((target,))

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets and last pulls of all groups."""
        groups = {*self.groups_of(topic), *self.pulls_by_group(topic)}
        self._remove([(group, topic) for group in sorted(groups)])

    def remove(self, group: str, topic: str) -> None:
        """Remove the group's offsets and last pulls of the topic."""
        if f"{topic}@{group}" in self._table or f"{topic}@{group}" in self._pulls:
            self._remove([(group, topic)])

    def remove_group(self, group: str) -> None:
        self._remove([(group, topic) for topic in self.topics_of(group)])

    def bound(self, end_of: Callable[[str, int], int]) -> int:
        """Reset offsets that are past the end of their queue after a power cut: the group would skip the next
        messages. `end_of(topic, queue)` returns the end; returns how many offsets were reset."""
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

    # --- server-side resets ---

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The group's next pull of the queue starts there; until then commits are ignored. InvalidOffset."""
        self._set(group, topic, queue_id, queue_offset)
        self._resets[group, topic, queue_id] = queue_offset
        self._changed((group,))

    @property
    def resets(self) -> Mapping[tuple[str, str, int], int]:
        """Pending resets: (group, topic, queue) → offset. A live view."""
        return self._resets

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove and return the pending reset; None if there is none."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    # --- where groups pull (for inspection only) ---

    def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Remember where the group pulls; ignored above the limits."""
        queues = self._pulls.get(f"{topic}@{group}")
        if queues is None or queue_id not in queues:
            if self._pull_count >= self._queues_max or not 0 <= queue_id <= QUEUE_ID_MAX:
                return
            self._pull_count += 1
            queues = self._pulls.setdefault(f"{topic}@{group}", {})
        queues[queue_id] = queue_offset

    def pulls_of(self, group: str, topic: str) -> Offsets | None:
        """Queue → last pull offset; callers may change existing entries. None: there is none yet."""
        return self._pulls.get(f"{topic}@{group}")

    def pulls_by_group(self, topic: str) -> dict[str, Offsets]:
        """Group → queue → last pull offset."""
        start = f"{topic}@"
        return {key[len(start) :]: dict(of) for key, of in self._pulls.items() if key.startswith(start)}

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """-1 if the group never pulled the queue."""
        return self._pulls.get(f"{topic}@{group}", {}).get(queue_id, -1)

    # --- the file ---

    def to_object(self) -> dict[str, object]:
        table, pulls, topics = dict(self._table), dict(self._pulls), dict(self._topics)
        lmq = {
            key: queues[0] for key, queues in table.items() if self._is_lmq_enabled and _is_lmq(key, queues)
        }
        members: dict[str, object] = {
            "dataVersion": self.version.to_object(),
            "groupTopicMap": {g: sorted(names.copy()) for g, names in topics.items() if "@" not in g},
            "offsetTable": {key: dict(queues) for key, queues in table.items() if key not in lmq},
            "pullOffsetTable": {key: dict(queues) for key, queues in pulls.items()},
        }
        if self._is_lmq_enabled:
            members["lmqOffsetTable"] = lmq
        return members

    def pulls_quoted(self) -> dict[str, dict[str, int]]:
        """`pullOffsetTable` with texts as keys, as standard JSON has them."""
        return {
            key: {str(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in self._pulls.items()
        }

    def to_json(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The file's text, in pieces of a fraction of a millisecond. Each shows the offsets of when it is made."""
        large: dict[str, Callable[[], Iterator[bytes]]] = {
            "groupTopicMap": self._topic_lines,
            "offsetTable": lambda: _offset_lines(
                self._table, self._is_plain if self._is_lmq_enabled else None
            ),
            "pullOffsetTable": lambda: _offset_lines(self._pulls),
        }
        small: dict[str, object] = {"dataVersion": self.version.to_object()}
        if self._is_lmq_enabled:
            small["lmqOffsetTable"] = {
                k: of[0] for k, of in self._table.copy().items() if not self._is_plain(k)
            }
        small = self._unknown.merge_into(small)
        for number, name in enumerate(sorted({*small, *large})):
            yield b",\n" if number else b"{\n"
            if name not in large:
                yield pretty({name: small[name]})[2:-2]
                continue
            yield b"\t" + orjson.dumps(name) + b":{"
            is_empty = True
            for piece in large[name]():
                yield piece
                is_empty = is_empty and not piece
            yield b"}" if is_empty else b"\n\t}"
        yield b"\n}"

    def _is_plain(self, key: str) -> bool:
        """Whether the key belongs into `offsetTable`, with LMQs."""
        return not _is_lmq(key, self._table.get(key, {}))

    def _topic_lines(self) -> Iterator[bytes]:
        """The members of `groupTopicMap`."""
        topics, comma = self._topics.copy(), b""
        for group in sorted(topics):
            if "@" not in group:
                names = b",\n\t\t\t".join(map(orjson.dumps, sorted(topics[group].copy())))
                listed = b"[\n\t\t\t%b\n\t\t]" % names if names else b"[]"
                yield b"%b\n\t\t%b:%b" % (comma, orjson.dumps(group), listed)
                comma = b","

    def load(self, text: bytes) -> None:
        """Replace the table by the file's offsets. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "consumerOffset.json")
        version = DataVersion.from_object(of.get("dataVersion", {}))
        table, pulls = _queues(of, "offsetTable"), _queues(of, "pullOffsetTable")
        lmq = json_fields.members_or_none(of.get("lmqOffsetTable"), "lmqOffsetTable")
        table |= {_pair(key): {0: json_fields.number(lmq, key, high=json_fields.LONG_MAX)} for key in lmq}
        self._table.clear()
        self._topics, self._groups, self._count = {}, {}, 0
        self._pulls = {f"{topic}@{group}": queues for (group, topic), queues in pulls.items()}
        self._pull_count = sum(map(len, pulls.values()))
        for (group, topic), queues in table.items():
            self._index(group, topic)[f"{topic}@{group}"] = queues
            self._count += len(queues)
        self._unknown.collect(of)
        self.version = version

    def follow(self, of: FollowedOffsets) -> None:
        """Put a master's offsets over our own, which stay where it has none, and take its version."""
        version, table, pulls = of
        changed = [
            group for (group, topic), queues in table.items() if self._table.get(f"{topic}@{group}") != queues
        ]
        for (group, topic), queues in table.items():
            if self._table.get(f"{topic}@{group}") == queues:
                continue
            for queue_id, queue_offset in queues.items():
                self._set(group, topic, queue_id, queue_offset)
        for (group, topic), queues in pulls.items():
            for queue_id, queue_offset in queues.items():
                self.note_pull(group, topic, queue_id, queue_offset)
        self.version = version
        self._changed(changed)

    def take_over(self, of: json_fields.Members) -> int:
        """Take what groups consumed at a slave that acted in our place; returns how many offsets moved. None goes back:
        the slave may lack our last commits. Versions do not decide, for not each commit changes them. ValueError:
        nothing changed."""
        table = _queues(of, "offsetTable")
        moved = [
            (group, topic, queue_id, queue_offset)
            for (group, topic), queues in table.items()
            for queue_id, queue_offset in queues.items()
            if queue_offset > self.committed(group, topic, queue_id)
        ]
        for entry in moved:
            self._set(*entry)
        if moved:
            self.version = self.version.next(self._clock.now_ms())
        self._changed({group for group, *_ in moved})
        return len(moved)

    def restore(self, key: str, queue_id: int, queue_offset: int) -> None:
        """Apply a journal entry that is newer than the file. It is not noted again: the file has to contain
        it before the journal drops it."""
        group, topic = _pair(key)
        if queue_id >= 0:
            self._set(group, topic, queue_id, queue_offset, note=False)
            self._changed((group,))
        elif key in self._table or key in self._pulls:
            self._remove([(group, topic)], note=False)

    def _set(
        self, group: str, topic: str, queue_id: int, queue_offset: int, end: int = 0, note: bool = True
    ) -> bool:
        """Whether the offset changed. InvalidOffset."""
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None or queue_id not in queues:
            queues = self._add_queue(group, topic, queue_id)
        if queues.get(queue_id) == queue_offset:
            return False
        queues[queue_id] = queue_offset
        if note:
            self._on_commit(key, queue_id, queue_offset, end)
        return True

    def _add_queue(self, group: str, topic: str, queue_id: int) -> Offsets:
        """The offsets to which the first one of a queue is added. InvalidOffset."""
        fault = queue_id_fault(queue_id)
        if fault is not None:
            raise InvalidOffset(fault)
        if self._count >= self._queues_max:
            raise InvalidOffset(f"offsets of {self._count} queues are kept, at most {self._queues_max}")
        self._count += 1
        return self._index(group, topic).setdefault(f"{topic}@{group}", {})

    def _index(self, group: str, topic: str) -> dict[str, Offsets]:
        self._topics.setdefault(group, set()).add(topic)
        known = self._groups.get(topic)
        if known is None:
            self._groups[topic] = self._alone.setdefault(group, frozenset((group,)))
        elif isinstance(known, set):
            known.add(group)
        elif group not in known:
            self._groups[topic] = {*known, group}
        return self._table

    def _drop_group(self, topic: str, group: str) -> None:
        known = self._groups.get(topic, frozenset())
        if isinstance(known, set):
            known.discard(group)
        if not known or known == self._alone.get(group):
            self._groups.pop(topic, None)

    def _remove(self, pairs: list[tuple[str, str]], note: bool = True) -> None:
        gone = set(pairs)
        for group, topic in pairs:
            self._count -= len(self._table.pop(f"{topic}@{group}", ()))
            if note:
                self._on_commit(f"{topic}@{group}", -1, -1, 0)
            _drop(self._topics, group, topic)
            self._drop_group(topic, group)
        for key in [key for key in self._resets if key[:2] in gone]:
            del self._resets[key]
        for group, topic in pairs:
            self._pull_count -= len(self._pulls.pop(f"{topic}@{group}", ()))
        if pairs:
            self._changed([group for group, _ in pairs])


def _offset_lines(
    table: dict[str, Offsets], is_wanted: Callable[[str], bool] | None = None
) -> Iterator[bytes]:
    """The members of a table of offsets, in its order: to sort hundreds of thousands of keys would hold up all
    threads for a quarter of a second. The keys are those of now."""
    keys, lines, place = list(table), OffsetLines(), 0
    if is_wanted is not None:
        keys = [key for key in keys if is_wanted(key)]
    while place < len(keys):
        piece, place = lines.add(table, keys, place, PIECE_OFFSETS, orjson.dumps)
        yield piece


def _is_lmq(key: str, queues: Offsets) -> bool:
    """Whether the group starts with %LMQ% and has one offset for the topic."""
    return f"@{name_rules.LMQ_PREFIX}" in key and queues.keys() == {0}


def _drop(index: dict[str, set[str]], key: str, item: str) -> None:
    items = index.get(key, set())
    items.discard(item)
    if not items:
        index.pop(key, None)


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
            _queue_id(queue): json_fields.whole(queue_offset, name)
            for queue, queue_offset in json_fields.members(queues, name).items()
        }
        for key, queues in table.items()
    }


def _queue_id(key: object) -> int:
    number = json_fields.whole(key, "queueId")
    fault = queue_id_fault(number)
    if fault is not None:
        raise ValueError(fault)
    return number
