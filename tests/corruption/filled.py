"""Filled: a small store of known content, and what must still be true of it after damage."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from firearrow._native.store.log.record import Record
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import SEGMENT_BYTES, log_records, open_store, properties_of, put, split

TOPICS = {"Orders": 3, "Trace": 1}
COUNT = 120
LATER = b"after the damage"
Key = tuple[str, int, int]


class Position(NamedTuple):
    """Where a message is in the log, its key in the index, and its body."""

    start: int
    end: int
    key: str
    body: bytes


class Filled:
    """A store, stopped cleanly or killed: several segments, queue files and index files."""

    def __init__(self, root: Path, *, killed: bool = False) -> None:
        self.root = root
        self.killed = killed
        store = open_store(root)
        for number in range(COUNT):
            topic = "Trace" if number % 8 == 7 else "Orders"
            put(
                store,
                b"%04d" % number * 12,
                topic,
                number % TOPICS[topic],
                properties_of(KEYS=f"k{number}", TAGS="a"),
                now_ms=100_000 + number,
            )
            if number % 5 == 0:
                store.write()
        store.write()
        if killed:
            store.flush_queues()
            store.abandon()
        else:
            store.close()
        self.positions = {
            (each.topic, each.queue_id, each.queue_offset): position_of(each) for each in log_records(root)
        }

    def copy(self, root: Path) -> Path:
        shutil.copytree(self.root, root)
        return root

    def untouched(self, ranges: Iterable[tuple[int, int]]) -> set[Key]:
        """Messages that no damaged range of the log touches."""
        hit = list(ranges)
        return {
            key
            for key, position in self.positions.items()
            if not any(position.start < high and low < position.end for low, high in hit)
        }

    def check(
        self,
        root: Path,
        must: set[Key],
        *,
        more: bool = False,
        keys: bool = True,
        headers: Iterable[tuple[int, int]] = (),
    ) -> tuple[str, ...]:
        """Open it, read everything, and query: all of `must` is there, and nothing that was not sent; returns what was
        found. `more`: messages may have been added. `keys`: also query by key. `headers`: where in the log a header may
        name another topic or offset."""
        hit = self.bodies_of(headers)
        with open_store(root) as store:
            seen = {key: body for key, body in messages(store) if not (more and body == LATER)}
            for key, body in seen.items():
                if body not in hit:
                    assert key in self.positions, f"{key} was never sent"
                    assert body == self.positions[key].body, f"{key} is another message"
            assert must <= seen.keys(), f"cannot be reached: {sorted(must - seen.keys())}"
            for key in sorted(must)[::7] if keys else ():
                found, _, _ = store.reader.query(key[0], self.positions[key].key, 8, 0, 1 << 40)
                assert self.positions[key].body in [split(each)[0].body for each in found], (
                    f"{key} not by its key"
                )
            return store.findings

    def bodies_of(self, ranges: Iterable[tuple[int, int]]) -> set[bytes]:
        """Of messages in a damaged range: their topic and offset, which no CRC covers, are taken as they are."""
        untouched = self.untouched(ranges)
        return {position.body for key, position in self.positions.items() if key not in untouched}

    def continues(self, root: Path) -> None:
        """Messages that are put now are after all others, and are there after a stop."""
        with open_store(root) as store:
            before = store.reader.max_offset("Orders", 0)
            placed = put(store, LATER, "Orders", 0, now_ms=1 << 40)
            assert placed.queue_offset == before
        with open_store(root) as store:
            got = store.reader.get("Orders", 0, before, 1)
            assert [record.body for record in split(got.body)] == [LATER]


def position_of(record: Record) -> Position:
    end = record.physical_offset + record.size
    return Position(record.physical_offset, end, record.properties["KEYS"], record.body)


def messages(store: MessageStore) -> Iterator[tuple[Key, bytes]]:
    """((topic, queue, offset), body) of every message, by pulls; a pull always makes progress."""
    for topic, queue_id in store.reader.queues():
        at = store.reader.min_offset(topic, queue_id)
        while at < store.reader.max_offset(topic, queue_id):
            got = store.reader.get(topic, queue_id, at, 32)
            assert got.next_offset > at, f"a pull of {topic} {queue_id} at {at} makes no progress: {got}"
            for record in split(got.body):
                assert (record.topic, record.queue_id) == (topic, queue_id)
                assert at <= record.queue_offset < got.next_offset
                yield (topic, queue_id, record.queue_offset), record.body
            at = got.next_offset


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT_BYTES:020d}"
