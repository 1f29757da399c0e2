"""Stores with any bytes changed: each requested offset is read as it was written, or reported as lost, once."""

import functools
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.support.examples import examples
from tests.support.stores import open_store, properties_of, put

COUNT = 60
QUEUE = MessageQueue("T", "s", 0)


@functools.cache
def pristine() -> dict[str, bytes]:
    """Files of a store with COUNT messages in two queues each, by their path in it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "s"
        with open_store(root) as store:
            for number in range(COUNT):
                for queue_id in (0, 1):
                    properties = properties_of(TAGS=f"t{number % 3}")
                    put(store, body(number), queue_id=queue_id, properties=properties)
            store.write()
        parts = ("commitlog", "consumequeue")
        files = [path for part in parts for path in (root / part).rglob("*") if path.is_file()]
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(files)}


def body(number: int) -> bytes:
    return b"%d " % number * (number % 9)


FILES = some.sampled_from(sorted(pristine()))
EDITS = some.lists(
    some.one_of(
        some.tuples(some.just("write"), FILES, some.integers(0, 4095), some.binary(min_size=1, max_size=24)),
        some.tuples(some.just("zero"), FILES, some.integers(0, 4095), some.integers(1, 4096)),
        some.tuples(some.just("cut"), FILES, some.integers(0, 4095)),
        some.tuples(some.just("delete"), FILES),
    ),
    min_size=1,
    max_size=5,
)


def damaged(folder: Path, edits: list[tuple[Any, ...]]) -> None:
    files = {name: bytearray(data) for name, data in pristine().items()}
    for kind, name, *how in edits:
        data = files.get(name)
        if data is None:
            continue
        if kind == "delete":
            del files[name]
        elif kind == "cut":
            del data[how[0] :]
        else:
            at, value = how
            new = bytes(value)  # this many zeros, or these
            data[at : at + len(new)] = new[: max(0, len(data) - at)]
    for part in ("commitlog", "consumequeue/T/0", "consumequeue/T/1"):
        (folder / part).mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


@examples(150)
@given(EDITS, some.sampled_from([1, 300, 1 << 20]), some.booleans())
def test_every_offset_is_read_or_lost_once(
    edits: list[tuple[Any, ...]], bytes_max: int, by_tag: bool
) -> None:
    seen: dict[int, bytes | None] = {}

    def lost(part: QueueRange, why: str) -> None:
        assert part.queue == QUEUE
        assert why
        for number in range(part.start, part.end):
            assert number not in seen
            seen[number] = None

    folder = Path(tempfile.mkdtemp()) / "s"
    try:
        damaged(folder, edits)
        message_filter = MessageFilter(tags=frozenset({"t1"})) if by_tag else MessageFilter()
        with StoreSource((str(folder),)).open() as reader:
            [(first, end)] = reader.bounds([QUEUE]).values()
            assert 0 <= first <= end
            for spans in reader.read(QueueRange(QUEUE, 0, COUNT), message_filter, lost, bytes_max=bytes_max):
                for record in (spans[index] for index in range(len(spans))):
                    assert record.queue_offset not in seen
                    assert (record.topic, record.queue_id) == ("T", 0)
                    seen[record.queue_offset] = record.body
            segments = reader.segments("s")
            walked = reader.read_log("s", segments[0].base if segments else 0, None, lambda *lost: None)
            assert sum(len(spans) for spans in walked) <= 2 * COUNT
            reader.log_end("s")
            reader.offset_at(QUEUE, 1000)
            reader.bytes_of(QueueRange(QUEUE, 0, COUNT))
    finally:
        shutil.rmtree(folder.parent)
    if not by_tag:
        assert sorted(number for number in seen if number < COUNT) == [*range(COUNT)]
    if all(kind in ("write", "zero") and str(name).startswith("commitlog") for kind, name, *_ in edits):
        for number, (name, start, stop) in enumerate(record_ranges()):
            touched = any(
                file == name and at < stop and at + (value if isinstance(value, int) else len(value)) > start
                for _, file, at, value in edits
            )
            if not touched and (not by_tag or number % 3 == 1):
                assert seen[number] == body(number)


@functools.cache
def record_ranges() -> list[tuple[str, int, int]]:
    """File of the log, start and end in it of each record of QUEUE."""
    found = []
    for name, entries in sorted(pristine().items()):
        if name.startswith("consumequeue/T/0/"):
            for physical, size, _ in struct.iter_unpack(">qiq", entries):
                if size > 0:
                    base = physical // 4096 * 4096
                    found.append((f"commitlog/{base:020d}", physical - base, physical - base + size))
    assert len(found) == COUNT
    return found
