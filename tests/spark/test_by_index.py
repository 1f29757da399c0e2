"""Keys found by a store's index: the same messages as all of it read, of far less read, whatever the index is like."""

import logging
import shutil
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.client.message import MessageQueue
from firearrow.spark_tools.choice import Choice
from firearrow.spark_tools.offline import by_index
from firearrow.spark_tools.offline.origin import StoreOrigin
from firearrow.spark_tools.offline.reader import StoreReader
from firearrow.spark_tools.origin import QueueRange
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.narrowing import Narrowing
from firearrow.spark_tools.plan.options import BATCH, STREAM, SourceOptions
from firearrow.spark_tools.plan.tail import Tail
from tests.spark.damaging import entry_at, opened, record_at, write_at
from tests.spark.stores import Golden
from tests.store.stores import open_store, properties_of, put

COUNT = 600
QUEUES = 2
SLOTS, ENTRIES = 50, 402
"""Of an index file: five files, in each of which some keys share every slot. A message has three entries, so that one
message at the end of each file has some of them in the next."""
NAMED = [*range(0, COUNT, 29), COUNT - 1]
Found = list[tuple[MessageQueue, int]]


def pair(number: int) -> str:
    """Two numbers each have keys of one hash: Java's of `Aa` and `BB` is the same."""
    return f"k{number // 2}" + ("Aa", "BB")[number % 2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Message n is in queue n % 2; it has a key of its own, one of every hundredth message, and a unique id."""
    root = tmp_path_factory.mktemp("indexed") / "store"
    with open_store(root, index_slots=SLOTS, index_entries=ENTRIES) as store:
        for number in range(COUNT):
            text = properties_of(KEYS=f"{pair(number)} hundred{number % 100}", UNIQ_KEY=f"U{number}")
            put(store, b"%d" % number, queue_id=number % QUEUES, properties=text, now_ms=1000 + number)
            store.write()
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "store"))


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read because it lies beside what is wanted."""
    monkeypatch.setattr(by_index, "NEAR", 0)


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def everything(reader: StoreReader, *topics: str) -> list[QueueRange]:
    queues = [queue for topic in topics or reader.topics() for queue in reader.queues(topic)]
    return [QueueRange(queue, *pair) for queue, pair in reader.bounds(queues).items() if pair[0] < pair[1]]


def read(reader: StoreReader, parts: list[QueueRange], choice: Choice) -> tuple[Found, list[str]]:
    """The messages, and what was lost."""
    lost: list[str] = []
    found = [
        (part.queue, spans.queue_offset(n))
        for part in parts
        for spans in reader.read(part, choice, lambda each, why: lost.append(f"{each}: {why}"), bytes_max=1 << 20)
        for n in range(len(spans))
    ]  # fmt: skip
    return found, lost


def wanted(*numbers: int) -> Choice:
    return Choice(keys=frozenset(map(pair, numbers)))


def check(root: Path, *choices: Choice) -> int:
    """Each finds the same by index; how many offsets are read for all."""
    planned = 0
    with opened(root) as reader:
        parts = everything(reader)
        for choice in choices or map(wanted, NAMED):
            narrowed = reader.by_index(parts, choice)
            assert read(reader, narrowed, choice)[0] == read(reader, parts, choice)[0]
            planned += sum(map(len, narrowed))
    return planned


# ---- what is found ----


def test_every_key_of_apaches_store_is_found(golden: Golden) -> None:
    keys: dict[str, set[str]] = defaultdict(set)
    ids: dict[str, set[str]] = defaultdict(set)
    for topic, queue in golden.queues():
        for message in queue["messages"]:
            keys[topic].update((message["keys"] or "").split())
            ids[topic].update([message["properties"].get("UNIQ_KEY", "")])
    planned = total = 0
    with opened(golden.root) as reader:
        for topic, of_topic in keys.items():
            parts = everything(reader, topic)
            choices = [Choice(keys=frozenset({key})) for key in of_topic]
            choices += [Choice(unique_ids=frozenset({each})) for each in ids[topic] - {""}]
            for choice in choices:
                narrowed = reader.by_index(parts, choice)
                found, _ = read(reader, narrowed, choice)
                assert found == read(reader, parts, choice)[0]
                assert found
                planned, total = planned + sum(map(len, narrowed)), total + sum(map(len, parts))
    assert planned < total / 10


def test_a_key_is_sought_in_all_topics(golden: Golden) -> None:
    with opened(golden.root) as reader:
        parts = everything(reader)
        for key in ("always", "k1", "nowhere"):
            choice = Choice(keys=frozenset({key}))
            narrowed = reader.by_index(parts, choice)
            assert read(reader, narrowed, choice)[0] == read(reader, parts, choice)[0]
            assert sum(map(len, narrowed)) < sum(map(len, parts)) / 10


def test_only_what_the_index_shows_is_read(whole: Path) -> None:
    edges = 2 * len(index_files(whole))
    assert edges == 10
    with opened(whole) as reader:
        parts = everything(reader)
        for number in NAMED:
            narrowed = reader.by_index(parts, wanted(number))
            offsets = {(part.queue.queue_id, at) for part in narrowed for at in range(part.start, part.end)}
            other = number ^ 1
            assert {(number % QUEUES, number // QUEUES), (other % QUEUES, other // QUEUES)} <= offsets
            assert len(offsets) <= 2 + edges
            assert narrowed == sorted(narrowed, key=lambda part: (part.queue, part.start))
        shared = reader.by_index(parts, Choice(keys=frozenset({"hundred7"})))
        assert 6 <= sum(map(len, shared)) <= 6 + edges


def test_every_key_and_unique_id_is_found(whole: Path) -> None:
    many = Choice(keys=frozenset(map(pair, NAMED)))
    ids = [Choice(unique_ids=frozenset({f"U{number}"})) for number in NAMED]
    both = Choice(unique_ids=frozenset({"U29", "U30"}), keys=frozenset({pair(30)}))
    assert 0 < check(whole, many) < COUNT / 4
    assert check(whole, *map(wanted, NAMED), *ids, both, Choice(keys=frozenset({"none"}))) > 0


def test_what_lies_near_is_one_range(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_index, "NEAR", 7)
    with opened(whole) as reader:
        parts = everything(reader, "T")[:1]
        apart = reader.by_index(parts, wanted(200, 216))
        assert {(100, 109)} < {(part.start, part.end) for part in apart}
        assert (100, 101) in {(part.start, part.end) for part in reader.by_index(parts, wanted(200, 218))}


def test_a_store_that_grows_is_read_to_its_end(whole: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "store"))
    with open_store(root, index_slots=SLOTS, index_entries=ENTRIES) as store:
        for number in range(COUNT, COUNT + 50):
            put(store, b"", queue_id=number % QUEUES, properties=properties_of(KEYS=pair(number)))
            store.write()
        assert check(root, *map(wanted, [*NAMED, *range(COUNT, COUNT + 50)])) < 100 * 14


def test_what_is_asked_for_beyond_the_store_is_still_told(whole: Path) -> None:
    queue = MessageQueue("T", "s", 0)
    with opened(whole) as reader:
        (part,) = [QueueRange(queue, -5, COUNT)]
        _, lost = read(reader, [part], wanted(30))
        found, told = read(reader, reader.by_index([part], wanted(30)), wanted(30))
        assert found == [(queue, 15)]
        assert told == lost
        assert len(lost) == 2


# ---- a damaged index ----


def set_entry(path: Path, number: int, text: str, at: int, value: int) -> None:
    write_at(path, 40 + SLOTS * 4 + number * 20 + at, struct.pack(text, value))


def chained(path: Path) -> int:
    """An entry with another one before it in its chain."""
    data = path.read_bytes()
    return next(
        n for n in range(1, ENTRIES) if struct.unpack_from(">i", data, 40 + SLOTS * 4 + n * 20 + 16)[0]
    )


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no-head": lambda path: path.write_bytes(path.read_bytes()[:30]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:2000]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbled": lambda path: write_at(path, 300, bytes(range(7, 256)) * 12),
    "slots-gone": lambda path: write_at(path, 40, bytes(SLOTS * 4)),
    "slots-wild": lambda path: write_at(path, 40, struct.pack(">i", 1 << 30) * SLOTS),
    "slots-negative": lambda path: write_at(path, 40, b"\xff" * SLOTS * 4),
    "entries-gone": lambda path: write_at(path, 40 + SLOTS * 4 + 2000, bytes(1000)),
    "end-too-far": lambda path: write_at(path, 24, struct.pack(">q", 1 << 40)),
    "begin-too-near": lambda path: write_at(path, 16, struct.pack(">q", 0)),
    "count-too-low": lambda path: write_at(path, 36, struct.pack(">i", 20)),
    "count-too-high": lambda path: write_at(path, 36, struct.pack(">i", 1 << 30)),
    "cyclic": lambda path: [set_entry(path, n, ">i", 16, n) for n in range(1, ENTRIES)],
    "cyclic-in-turn": lambda path: [set_entry(path, n, ">i", 16, n + SLOTS) for n in range(1, ENTRIES)],
    "places-off": lambda path: [set_entry(path, n, ">q", 4, 1 << 50) for n in range(50, ENTRIES)],
    "folder": lambda path: (path.unlink(), path.mkdir()),
}
SEEN = set(DAMAGES) - {"gone", "zeros", "begin-too-near"}
"""Those that cannot be a young file or none."""


@pytest.mark.parametrize("number", [0, 2, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_damaged_file_covers_is_read(
    root: Path, damage: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = index_files(root)[number]
    DAMAGES[damage](path)
    with caplog.at_level(logging.WARNING, "firearrow.spark"):
        planned = check(root)
    assert planned < len(NAMED) * COUNT / 2
    if damage in SEEN and not (number == -1 and damage in ("entries-gone", "garbled")):
        assert any(str(path) in record.getMessage() for record in caplog.records)


def test_without_an_index_all_is_read(root: Path) -> None:
    shutil.rmtree(root / "index")
    assert check(root) == len(NAMED) * COUNT


def test_with_the_first_or_last_files_alone_the_rest_is_read(root: Path) -> None:
    for path in index_files(root)[1:-1]:
        path.unlink()
    assert len(NAMED) * COUNT / 2 < check(root) < len(NAMED) * COUNT


@pytest.mark.parametrize("gone", range(5))
def test_keys_at_the_ends_of_files_are_found_whichever_is_gone(root: Path, gone: int) -> None:
    ends = [(ENTRIES - 1) * file // 3 for file in range(1, 5)]
    index_files(root)[gone].unlink()
    for number in [end + near for end in ends for near in (-1, 0, 1)]:
        check(root, wanted(number), Choice(unique_ids=frozenset({f"U{number}"})))
        check(root, Choice(keys=frozenset({f"hundred{number % 100}"})))


def test_an_entry_that_shows_another_message_is_not_believed(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither where another record is, nor where none begins."""
    for off in (0, 1):
        for path in index_files(root):
            data = path.read_bytes()
            for n in range(2, ENTRIES - 1):
                (place,) = struct.unpack_from(">q", data, 40 + SLOTS * 4 + (n - 1) * 20 + 4)
                if place != struct.unpack_from(">q", data, 40 + SLOTS * 4 + n * 20 + 4)[0]:
                    set_entry(path, n, ">q", 4, place + off)
        assert check(root, *(Choice(unique_ids=frozenset({f"U{number}"})) for number in NAMED)) > COUNT
        assert "shows a key at" in caplog.text
        caplog.clear()


# ---- a damaged store ----


@pytest.mark.parametrize("number", [0, 100, 151, 299])
def test_a_message_that_is_lost_is_told(root: Path, number: int) -> None:
    queue, choice = MessageQueue("T", "s", 0), wanted(2 * number)
    path, position, _ = record_at(root, number)
    write_at(path, position + 4, b"\xff" * 8)
    with opened(root) as reader:
        found, lost = read(reader, reader.by_index(everything(reader, "T"), choice), choice)
        assert not found
        assert any(text.startswith(f"{QueueRange(queue, number, number + 1)}: ") for text in lost)


def test_messages_in_a_lost_segment_are_told(root: Path) -> None:
    record_at(root, 150)[0].unlink()
    with opened(root) as reader:
        parts, choice = everything(reader), wanted(300)
        _, lost = read(reader, reader.by_index(parts, choice), choice)
        assert lost == read(reader, parts, choice)[1]
        assert len(lost) == 2


@pytest.mark.parametrize("number", [131, 132, 133, 149, 165, 198, 199])
@pytest.mark.parametrize("physical", [0, 1 << 50])
def test_garbled_entries_lead_nobody_astray(
    root: Path, number: int, physical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand where a binary search looks for the ends of what no index file tells of."""
    monkeypatch.setattr(by_index, "STEADY", 5)
    index_files(root)[2].unlink()
    path, position = entry_at(root, number)
    write_at(path, position, struct.pack(">q", physical))
    with opened(root) as reader:
        parts = [QueueRange(part.queue, 100, 230) for part in everything(reader)]
        for offset in set(range(100, 230)) - {number}:
            choice = wanted(offset * QUEUES)
            assert read(reader, reader.by_index(parts, choice), choice)[0] == [(parts[0].queue, offset)]


def test_a_queue_file_that_is_gone_is_told(root: Path) -> None:
    index_files(root)[2].unlink()
    entry_at(root, 150)[0].unlink()
    check(root, *map(wanted, range(120, 400, 3)))


# ---- how much is asked ----


def test_too_many_keys_are_not_looked_up(whole: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = Choice(keys=frozenset(f"k{number}" for number in range(by_index.KEYS_MAX + 1)))
    with opened(whole) as reader:
        parts = everything(reader)
        assert reader.by_index(parts, many) == parts
        assert "is not asked for 10001 keys of 1 topics" in caplog.text
        assert reader.by_index(parts, Choice()) == parts
        assert reader.by_index(parts, Choice(keys=frozenset({"\udcff"}))) == parts
        assert reader.by_index([], wanted(1)) == []


def test_a_key_of_too_many_messages_is_not_looked_up(
    whole: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    choice = Choice(keys=frozenset({"hundred1", "hundred2"}))
    with opened(whole) as reader:
        parts = everything(reader)
        monkeypatch.setattr(by_index, "PLACES_MAX", 12)
        assert sum(map(len, reader.by_index(parts, choice))) < COUNT / 4
        monkeypatch.setattr(by_index, "PLACES_MAX", 11)
        assert reader.by_index(parts, choice) == parts
        assert "more than 11" in caplog.text
        late = [QueueRange(part.queue, 200, part.end) for part in parts]
        assert sum(map(len, reader.by_index(late, choice))) < COUNT / 4


# ---- plans ----


def planned(root: Path, narrowing: Narrowing | None = None, **options: str) -> list[QueueRange]:
    origin = StoreOrigin((f"s={root}",))
    plan = BatchPlan(origin, SourceOptions.of({"path": "/s", **options}, BATCH), narrowing or Narrowing())
    found = [piece for part in plan.parts() for piece in part]
    assert all(piece.size for piece in found)
    return found


def test_a_table_asks_the_index_where_it_is_told_to(whole: Path) -> None:
    narrowed = planned(whole, keys=pair(300), keysByIndex="true")
    assert (MessageQueue("T", "s", 0), 150, 151) in {(each.queue, each.start, each.end) for each in narrowed}
    assert sum(map(len, narrowed)) <= 12
    assert sum(map(len, planned(whole, keys=pair(300)))) == COUNT


def test_a_filter_that_is_pushed_asks_the_index(whole: Path) -> None:
    for narrowing in (
        Narrowing(keys=frozenset({pair(300)})),
        Narrowing(unique_ids=frozenset({"U300"})),
    ):
        assert sum(map(len, planned(whole, narrowing, keysByIndex="true", pushDown="true"))) <= 12
        assert sum(map(len, planned(whole, narrowing, pushDown="true"))) == COUNT
    assert sum(map(len, planned(whole, keysByIndex="true", pushDown="true"))) == COUNT


def test_a_stream_asks_the_index(whole: Path) -> None:
    options = {"path": "/s", "keys": pair(300), "keysByIndex": "true", "startingOffsets": "earliest"}
    tail = Tail(StoreOrigin((f"s={whole}",)), SourceOptions.of(options, STREAM))
    starts = tail.first()
    ends = tail.end(starts, limited=True)
    assert set(ends.values()) == {COUNT // QUEUES}
    assert sum(len(piece) for part in tail.parts(starts, ends) for piece in part) <= 12


# ---- any store ----

KEYS = ("Aa", "BB", "a", "ä", "hundred", "T#tag")


@st.composite
def messages(draw: st.DrawFn) -> list[tuple[str, int, str, str]]:
    """Topic, queue, keys and tag."""
    one = st.tuples(
        st.sampled_from(("T", "Tä")),
        st.integers(0, 2),
        st.lists(st.sampled_from(KEYS), max_size=3).map(" ".join),
        st.sampled_from(("", "tag")),
    )
    return draw(st.lists(one, min_size=1, max_size=120))


@given(messages(), st.sets(st.integers(0, 12)), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_any_store_with_any_files_of_its_index(
    tmp_path_factory: pytest.TempPathFactory,
    given: list[tuple[str, int, str, str]],
    gone: set[int],
    slots: int,
) -> None:
    root = tmp_path_factory.mktemp("any") / "store"
    with open_store(root, index_slots=slots, index_entries=30) as store:
        for topic, queue_id, keys, tag in given:
            properties = {name: text for name, text in (("KEYS", keys), ("TAGS", tag)) if text}
            put(store, b"", topic, queue_id, properties_of(**properties))
            store.write()
    for number, path in enumerate(index_files(root)):
        if number in gone:
            path.unlink()
    check(root, *(Choice(keys=frozenset({key})) for key in KEYS), Choice(keys=frozenset(KEYS)))
    shutil.rmtree(root)
