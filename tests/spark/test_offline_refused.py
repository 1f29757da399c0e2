"""Folders that are no store, or not a complete one: refused in a sentence, or read as far as possible."""

import json
import os
import shutil
from pathlib import Path

import pytest

from firearrow._native.base.hash import java_hash
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import StoreUnreadable, TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from tests.spark.damaged_store import COUNT, QUEUE, LossRecorder, offsets, opened
from tests.support.stores import open_store, properties_of, put


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="nowhere is not a folder: give the store folder of a broker"):
        opened(tmp_path / "nowhere")
    with pytest.raises(
        StoreUnreadable, match=r"is not a store: it has no folder commitlog\. If storePathCommitLog"
    ):
        opened(tmp_path)


def test_a_part_of_a_store_is_refused(root: Path) -> None:
    with pytest.raises(
        StoreUnreadable, match="commitlog is a folder inside a store: give the folder above it"
    ):
        opened(root / "commitlog")


def test_queues_in_rocksdb_are_refused(root: Path) -> None:
    (root / "consumequeue_r").mkdir()
    with opened(root) as reader:  # a broker that migrates writes both
        assert reader.bounds([QUEUE])[QUEUE] == (0, COUNT)
    shutil.rmtree(root / "consumequeue")
    with pytest.raises(StoreUnreadable, match=r"RocksDB \(consumequeue_r\).* with the option nameServer"):
        opened(root)


def test_queues_of_batches_are_refused(root: Path) -> None:
    (root / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    with opened(root) as reader:
        assert "B" in reader.topics()
        with pytest.raises(StoreUnreadable, match=r"B in .* has batch queues"):
            reader.queues("B")


def test_compaction_topics_are_refused(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    attributes = {"attributes": {"cleanup.policy": "COMPACTION"}, "readQueueNums": 1}
    table = {"topicConfigTable": {"C": attributes}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    with opened(root) as reader:
        assert "C" in reader.topics()
        with pytest.raises(StoreUnreadable, match=r"C in .* is a compaction topic .* option nameServer"):
            reader.queues("C")


@pytest.mark.parametrize("name", ["notes.txt", "0", "00000000000000000000.bak", "٠" * 20])
def test_files_of_no_store_are_named(root: Path, name: str) -> None:
    (root / "commitlog" / name).write_text("x")
    with pytest.raises(StoreUnreadable, match="does not belong to a store: move it away"):
        opened(root)


@pytest.mark.parametrize("topic", ["", ".", "..", "../commitlog", "a/b", "a\0b"])
def test_no_name_of_a_topic_leads_out_of_the_store(root: Path, topic: str) -> None:
    with opened(root) as reader:
        with pytest.raises(TopicNotFound):
            reader.queues(topic)
        with pytest.raises(TopicNotFound):
            reader.bounds([MessageQueue(topic, "s", 0)])


def test_a_log_elsewhere_is_read_through_a_link(root: Path, tmp_path: Path) -> None:
    (root / "commitlog").rename(tmp_path / "log")
    (root / "commitlog").symlink_to(tmp_path / "log")
    with opened(root) as reader:
        assert offsets(reader, 0, COUNT, LossRecorder()) == [*range(COUNT)]


def test_either_of_topics_and_queues_may_be_missing(root: Path) -> None:
    assert not (root / "config").exists()
    with opened(root) as reader:
        assert reader.topics() == ["T"]
        assert reader.groups() == {}
    (root / "config").mkdir()
    declared = '{"topicConfigTable":{"D":{"readQueueNums":2},"E":{"readQueueNums":-1},"F":7}}'
    (root / "config" / "topics.json").write_text(declared)
    shutil.rmtree(root / "consumequeue")
    with opened(root) as reader:
        assert reader.topics() == ["D", "E", "F"]
        queues = reader.queues("D")
        assert queues == [MessageQueue("D", "s", 0), MessageQueue("D", "s", 1)]
        assert reader.bounds(queues) == dict.fromkeys(queues, (0, 0))
        assert reader.queues("E") == reader.queues("F") == []
        (root / "config" / "topics.json").write_text('{"topicConfigTable":{"G":{"readQueueNums":1}}}')
        assert reader.topics() == ["G"]


def test_a_config_that_is_cut_is_replaced_by_its_copy(root: Path) -> None:
    config = root / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:4')
    with opened(root) as reader, pytest.raises(StoreUnreadable, match=r"consumerOffset\.json cannot be read"):
        reader.groups()
    (config / "consumerOffset.json.bak").write_text(
        '{"offsetTable":{"T@g":{0:3,"x":1},"no group":{0:1},"T@h":5}}'
    )
    with opened(root) as reader:
        assert reader.groups() == {"g": {QUEUE: 3}}


def test_the_newer_file_of_offsets_counts(root: Path) -> None:
    config = root / "config"
    config.mkdir()
    plain, lmq = config / "consumerOffset.json", config / "lmqConsumerOffset.json"
    plain.write_text('{"offsetTable":{"T@g":{0:3}}}')
    lmq.write_text('{"offsetTable":{"T@g":{0:9}},"lmqOffsetTable":{"%LMQ%x@g":5}}')
    for newer, counted in ((plain, 3), (lmq, 9)):
        for path in (plain, lmq):
            os.utime(path, ns=(0, 2 if path == newer else 1))
        with opened(root) as reader:
            assert reader.groups() == {"g": {QUEUE: counted, MessageQueue("%LMQ%x", "s", 0): 5}}


def test_tags_with_equal_hashes_are_distinguished(tmp_path: Path) -> None:
    assert java_hash("Aa") == java_hash("BB")
    with open_store(tmp_path) as store:
        for tag in ("Aa", "BB", "Aa"):
            put(store, b"", properties=properties_of(TAGS=tag))
        store.write()
    with opened(tmp_path) as reader:
        assert offsets(reader, 0, 3, LossRecorder(), MessageFilter(tags=frozenset({"BB"}))) == [1]
