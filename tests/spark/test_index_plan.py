"""Keys found by a store's index: the same messages as in a full read, from far fewer offsets."""

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline import index_plan
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.options import BATCH, STREAM, SourceOptions
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.plan.stream_offsets import StreamCursor
from tests.spark.damaged_store import opened
from tests.spark.indexed_store import (
    COUNT,
    ENTRIES,
    NAMED,
    QUEUE_FILE_BYTES,
    QUEUES,
    SLOTS,
    check,
    everything,
    index_files,
    pair,
    read,
    wanted,
)
from tests.spark.stores import Golden
from tests.support.stores import open_store, properties_of, put

pytestmark = pytest.mark.usefixtures("apart")


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
            choices = [MessageFilter(keys=frozenset({key})) for key in of_topic]
            choices += [MessageFilter(unique_ids=frozenset({each})) for each in ids[topic] - {""}]
            for message_filter in choices:
                narrowed = reader.by_index(parts, message_filter)
                found, _ = read(reader, narrowed, message_filter)
                assert found == read(reader, parts, message_filter)[0]
                assert found
                planned, total = planned + sum(map(len, narrowed)), total + sum(map(len, parts))
    assert planned < total / 10


def test_a_key_is_sought_in_all_topics(golden: Golden) -> None:
    with opened(golden.root) as reader:
        parts = everything(reader)
        for key in ("always", "k1", "nowhere"):
            message_filter = MessageFilter(keys=frozenset({key}))
            narrowed = reader.by_index(parts, message_filter)
            assert read(reader, narrowed, message_filter)[0] == read(reader, parts, message_filter)[0]
            assert sum(map(len, narrowed)) < sum(map(len, parts)) / 10


def test_only_what_the_index_shows_is_read(indexed: Path) -> None:
    edges = 2 * len(index_files(indexed))
    assert edges == 10
    with opened(indexed) as reader:
        parts = everything(reader)
        for number in NAMED:
            narrowed = reader.by_index(parts, wanted(number))
            offsets = {(part.queue.queue_id, at) for part in narrowed for at in range(part.start, part.end)}
            other = number ^ 1
            assert {(number % QUEUES, number // QUEUES), (other % QUEUES, other // QUEUES)} <= offsets
            assert len(offsets) <= 2 + edges
            assert narrowed == sorted(narrowed, key=lambda part: (part.queue, part.start))
        shared = reader.by_index(parts, MessageFilter(keys=frozenset({"hundred7"})))
        assert 6 <= sum(map(len, shared)) <= 6 + edges


def test_every_key_and_unique_id_is_found(indexed: Path) -> None:
    many = MessageFilter(keys=frozenset(map(pair, NAMED)))
    ids = [MessageFilter(unique_ids=frozenset({f"U{number}"})) for number in NAMED]
    both = MessageFilter(unique_ids=frozenset({"U29", "U30"}), keys=frozenset({pair(30)}))
    assert 0 < check(indexed, many) < COUNT / 4
    assert check(indexed, *map(wanted, NAMED), *ids, both, MessageFilter(keys=frozenset({"none"}))) > 0


def test_what_is_near_is_one_range(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_plan, "GAP_MAX", 7)
    with opened(indexed) as reader:
        parts = everything(reader, "T")[:1]
        apart = reader.by_index(parts, wanted(200, 216))
        assert {(100, 109)} < {(part.start, part.end) for part in apart}
        assert (100, 101) in {(part.start, part.end) for part in reader.by_index(parts, wanted(200, 218))}


def test_a_store_that_grows_is_read_to_its_end(indexed: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(indexed, tmp_path / "store"))
    with open_store(
        root, index_slots=SLOTS, index_entries=ENTRIES, queue_file_bytes=QUEUE_FILE_BYTES
    ) as store:
        for number in range(COUNT, COUNT + 50):
            put(store, b"", queue_id=number % QUEUES, properties=properties_of(KEYS=pair(number)))
            store.write()
        assert check(root, *map(wanted, [*NAMED, *range(COUNT, COUNT + 50)])) < 100 * 14


def test_what_is_asked_for_beyond_the_store_is_reported(indexed: Path) -> None:
    queue = MessageQueue("T", "s", 0)
    with opened(indexed) as reader:
        (part,) = [QueueRange(queue, -5, COUNT)]
        _, lost = read(reader, [part], wanted(30))
        found, reported = read(reader, reader.by_index([part], wanted(30)), wanted(30))
        assert found == [(queue, 15)]
        assert reported == lost
        assert len(lost) == 2


# ---- number of keys ----


def test_too_many_keys_are_not_looked_up(indexed: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = MessageFilter(keys=frozenset(f"k{number}" for number in range(index_plan.KEYS_MAX + 1)))
    with opened(indexed) as reader:
        parts = everything(reader)
        assert reader.by_index(parts, many) == parts
        assert "too many keys for its index, 10001 of 1 topics" in caplog.text
        assert reader.by_index(parts, MessageFilter()) == parts
        assert reader.by_index(parts, MessageFilter(keys=frozenset({"\udcff"}))) == parts
        assert reader.by_index([], wanted(1)) == []


def test_a_key_of_too_many_messages_is_not_looked_up(
    indexed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    message_filter = MessageFilter(keys=frozenset({"hundred1", "hundred2"}))
    with opened(indexed) as reader:
        parts = everything(reader)
        monkeypatch.setattr(index_plan, "HITS_MAX", 12)
        assert sum(map(len, reader.by_index(parts, message_filter))) < COUNT / 4
        monkeypatch.setattr(index_plan, "HITS_MAX", 11)
        assert reader.by_index(parts, message_filter) == parts
        assert "more than 11" in caplog.text
        late = [QueueRange(part.queue, 200, part.end) for part in parts]
        assert sum(map(len, reader.by_index(late, message_filter))) < COUNT / 4


# ---- plans ----


def planned(root: Path, **options: str) -> list[QueueRange]:
    message_source = StoreSource((f"s={root}",))
    plan = BatchPlan(message_source, SourceOptions.of({"path": "/s", **options}, BATCH))
    found = [each for part in plan.parts() for each in part]
    assert all(each.size for each in found)
    return found


def test_a_table_uses_the_index_if_configured(indexed: Path) -> None:
    narrowed = planned(indexed, keys=pair(300), keysByIndex="true")
    assert (MessageQueue("T", "s", 0), 150, 151) in {(each.queue, each.start, each.end) for each in narrowed}
    assert sum(map(len, narrowed)) <= 12
    assert sum(map(len, planned(indexed, keys=pair(300)))) == COUNT


def test_a_filter_that_is_pushed_asks_the_index(indexed: Path) -> None:
    for pushdown in (
        Pushdown(keys=frozenset({pair(300)})),
        Pushdown(unique_ids=frozenset({"U300"})),
    ):
        pushed = pushdown.to_json()
        assert sum(map(len, planned(indexed, pushedFilters=pushed, keysByIndex="true"))) <= 12
        assert sum(map(len, planned(indexed, pushedFilters=pushed))) == COUNT


def test_a_stream_asks_the_index(indexed: Path) -> None:
    options = {"path": "/s", "keys": pair(300), "keysByIndex": "true", "startingOffsets": "earliest"}
    tail = StreamCursor(StoreSource((f"s={indexed}",)), SourceOptions.of(options, STREAM))
    starts = tail.first()
    ends = tail.end(starts, limited=True)
    assert set(ends.values()) == {COUNT // QUEUES}
    assert sum(len(each) for part in tail.parts(starts, ends) for each in part) <= 12


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
    check(root, *(MessageFilter(keys=frozenset({key})) for key in KEYS), MessageFilter(keys=frozenset(KEYS)))
    shutil.rmtree(root)
