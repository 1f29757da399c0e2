"""Stores as files: Apache's as in their manifests, FireArrow's message for message, and nothing is changed."""

import hashlib
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.columnar.record_spans import Spans
from firearrow._native.protocol.fastjson import loads
from firearrow._native.store.log.record import Record
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption, TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange, Source, SourceReader
from firearrow.spark_tools.offline.reader import OfflineReader
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark.stores import BROKER, Golden, KnownStore
from tests.unit.store.test_golden import assert_same

EVERYTHING = MessageFilter()


def never(part: QueueRange, why: str) -> None:
    raise AssertionError(f"{part} is lost: {why}")


def records(
    reader: SourceReader,
    part: QueueRange,
    message_filter: MessageFilter = EVERYTHING,
    *,
    bytes_max: int = 1 << 20,
) -> list[Record]:
    return [spans[n] for spans in read(reader, part, message_filter, bytes_max) for n in range(len(spans))]


def read(
    reader: SourceReader, part: QueueRange, message_filter: MessageFilter, bytes_max: int
) -> Iterator[Spans]:
    return reader.read(part, message_filter, never, bytes_max=bytes_max)


def whole(reader: SourceReader, queue: MessageQueue) -> QueueRange:
    return QueueRange(queue, *reader.bounds([queue])[queue])


def traces(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that reading could leave."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"",
        )
        for path in root.rglob("*")
    }


# ---- Apache's ----


def test_every_message_of_a_golden_store_is_read_as_its_manifest_says(golden: Golden) -> None:
    before = traces(golden.root)
    seen = 0
    with StoreSource((f"apache={golden.root}",)).open() as reader:
        for topic, entry in golden.queues():
            queue = MessageQueue(topic, "apache", entry["queueId"])
            assert queue in reader.queues(topic)
            part = whole(reader, queue)
            assert (part.start, part.end) == (entry["minOffset"], entry["maxOffset"])
            found = records(reader, part, bytes_max=2000)
            assert len(found) == len(entry["messages"])
            for record, message in zip(found, entry["messages"], strict=True):
                assert_same(record, message)
                seen += 1
            assert reader.bytes_of(part) == sum(record.size for record in found)
    assert seen > 800
    assert traces(golden.root) == before


def test_topics_are_those_that_are_declared_and_those_that_have_queues(golden: Golden) -> None:
    with StoreSource((str(golden.root),)).open() as reader:
        topics = reader.topics()
        declared = json.loads((golden.root / "config" / "topics.json").read_text())["topicConfigTable"]
        assert set(topics) >= {topic for topic, _ in golden.queues()} | set(declared)
        assert topics == sorted(set(topics))
        assert "%LMQ%one" in topics  # LMQs are never declared
        with pytest.raises(TopicNotFound, match="has no topic 'GoldenNothing'"):
            reader.queues("GoldenNothing")
        empty = [queue for queue in reader.queues("GoldenBatch") if whole(reader, queue).end == 0]
        assert empty  # declared with four queues, and not all have a message


def test_groups_are_those_that_the_broker_saved(golden: Golden) -> None:
    with StoreSource((f"a={golden.root}",)).open() as reader:
        groups = reader.groups()
    offset_table = loads(golden.manifest["consumerOffsets"])["offsetTable"]
    users = {group: queues for group, queues in groups.items() if group.startswith("CG_")}
    assert len(users) >= 2
    for group, queues in users.items():
        for queue, queue_offset in queues.items():
            name = f"{queue.topic}@{group}"
            if name in offset_table:  # LMQs have a separate table
                assert offset_table[name][str(queue.queue_id)] == queue_offset
    assert users["CG_REPLIER"][MessageQueue("GoldenRequest", "a", 3)] == 1


@pytest.mark.parametrize("topic", ["GoldenPlain", "GoldenFill", "SCHEDULE_TOPIC_XXXX", "GoldenSql"])
def test_tags_are_found_by_their_text(golden: Golden, topic: str) -> None:
    """Entries of the delay topic have times where others have the tags code."""
    with StoreSource((f"a={golden.root}",)).open() as reader:
        for _, entry in (each for each in golden.queues() if each[0] == topic):
            part = whole(reader, MessageQueue(topic, "a", entry["queueId"]))
            for tag in {message.get("tags") for message in entry["messages"]} - {None, ""}:
                found = records(reader, part, MessageFilter(tags=frozenset({tag})))
                wanted = [m["physicalOffset"] for m in entry["messages"] if m.get("tags") == tag]
                assert [record.physical_offset for record in found] == wanted


def test_times_lead_to_offsets_as_in_the_broker(golden: Golden) -> None:
    with StoreSource((f"a={golden.root}",)).open() as reader:
        asked = 0
        for topic, entry in golden.queues():
            queue = MessageQueue(topic, "a", entry["queueId"])
            times = [message["storeTimestamp"] for message in entry["messages"]]
            for ms in {*times, times[0] - 1, times[-1] + 1, times[len(times) // 2] + 1, 0, 1 << 60}:
                later = (n for n, time in enumerate(times) if time >= ms)
                assert reader.offset_at(queue, ms) == entry["minOffset"] + next(later, len(times)), (
                    topic,
                    ms,
                )
                asked += 1
    assert asked > 200


# ---- FireArrow's ----


def test_a_known_store_is_read_message_for_message(store: KnownStore) -> None:
    before = traces(store.root)
    with StoreSource((str(store.root),)).open() as reader:
        for topic in {known.queue.topic for known in store.messages}:
            queues = reader.queues(topic)
            assert [queue.broker_name for queue in queues] == [BROKER] * len(queues)
            for queue in queues:
                known = store.in_queue(topic, queue.queue_id)
                found = records(reader, whole(reader, queue))
                assert [record.queue_offset for record in found] == [each.queue_offset for each in known]
                assert [r.properties["UNIQ_KEY"] for r in found] == [each.unique_id for each in known]
                assert [r.body for r in found if not r.sys_flag & 1] == [
                    k.body for k in known if not k.packed
                ]
    assert traces(store.root) == before


@pytest.mark.parametrize(
    "message_filter",
    [
        MessageFilter(tags=frozenset({"paid"})),
        MessageFilter(tags=frozenset({"paid", "created"}), keys=frozenset(f"Orders-{n}" for n in range(40))),
        MessageFilter(keys=frozenset({"Orders-3", "Orders-17"})),
        MessageFilter(sql="number > 100 AND TAGS = 'shipped'"),
        MessageFilter(tags=frozenset({"nothing"})),
    ],
)
@pytest.mark.parametrize("bytes_max", [1, 5000, 1 << 30])
def test_what_is_chosen_is_what_is_read(
    store: KnownStore, message_filter: MessageFilter, bytes_max: int
) -> None:
    with StoreSource((str(store.root),)).open() as reader:
        found = [
            record.properties["UNIQ_KEY"]
            for queue in reader.queues("Orders")
            for record in records(reader, whole(reader, queue), message_filter, bytes_max=bytes_max)
        ]
    wanted = [
        known.unique_id
        for known in sorted(store.of("Orders"), key=lambda known: (known.queue, known.queue_offset))
        if (not message_filter.tags or known.tags in message_filter.tags)
        and (not message_filter.keys or message_filter.keys & set(known.keys))
        and (
            message_filter.sql is None
            or (known.tags == "shipped" and int(known.properties.get("number", "0")) > 100)
        )
    ]
    assert found == wanted
    assert bool(found) == ("nothing" not in message_filter.tags)


def test_a_part_of_a_queue_is_a_part_of_its_records(store: KnownStore) -> None:
    queue = MessageQueue("Orders", BROKER, 1)
    with StoreSource((str(store.root),)).open() as reader:
        end = whole(reader, queue).end
        for start, stop in ((0, 1), (end - 1, end), (99, 101), (17, 17), (95, end)):
            part = QueueRange(queue, start, stop)
            assert [record.queue_offset for record in records(reader, part)] == [*range(start, stop)]
            for spans in read(reader, part, EVERYTHING, 3000):
                assert spans.bytes - spans.size(len(spans) - 1) < 3000


# ---- several, their names, pickling for the workers ----


def test_several_stores_are_read_as_one(golden_clean: Golden, store: KnownStore) -> None:
    message_source: Source = StoreSource((f"apache={golden_clean.root}", str(store.root)))
    assert str(message_source) == f"{golden_clean.root}, {store.root}"
    with pickle.loads(pickle.dumps(message_source)).open() as reader:
        assert {"GoldenPlain", "Orders"} <= set(reader.topics())
        shared = reader.queues("TBW102")
        assert {queue.broker_name for queue in shared} == {"apache", BROKER}
        assert shared == sorted(shared)
        assert {queue.broker_name for queue in reader.queues("Orders")} == {BROKER}
        mixed = [MessageQueue("Orders", BROKER, 0), MessageQueue("GoldenFill", "apache", 0)]
        assert reader.bounds(mixed)[mixed[1]] == (0, 399)
        with pytest.raises(InvalidOption, match="no store is named 'other'; the stores are apache, broker-a"):
            reader.bounds([MessageQueue("T", "other", 0)])


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ((), "give at least one store folder"),
        (("/a/store", "/b/store"), "two stores are named 'store': give them names, as NAME=FOLDER"),
        (("x=/a/store", "x=/b/other"), "two stores are named 'x'"),
        (("/",), "the name of / cannot be a broker name: write NAME=/"),
        (("x=",), "'x=' has no folder"),
        (("",), "'' has no folder"),
        (("/a/b=c",), "the name of /a/b=c cannot be a broker name: write NAME=/a/b=c"),
    ],
)
def test_paths_that_name_no_store_are_refused(paths: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidOption, match=f"path: {why}"):
        StoreSource(paths)


def test_folders_are_absolute_so_that_workers_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert StoreSource(("data/store",)).paths == (f"store={tmp_path}/data/store",)
    assert StoreSource(("a=b/../c",)) == StoreSource((f"a={tmp_path}/c",))
    assert StoreSource((f"x={tmp_path}/b=c",)).paths == (f"x={tmp_path}/b=c",)
    again = StoreSource(StoreSource(("data/store",)).paths)
    assert again.paths == (f"store={tmp_path}/data/store",)


def test_a_reader_leaves_no_file_open(store: KnownStore) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with StoreSource((str(store.root),)).open() as reader:
        assert isinstance(reader, OfflineReader)
        queue = reader.queues("Orders")[0]
        reader.offset_at(queue, 5)
        started = read(reader, whole(reader, queue), EVERYTHING, 100)
        next(started)
        started.close()  # type: ignore[attr-defined]
    assert set(os.listdir("/proc/self/fd")) <= before
