"""Apache's own stores, clean and crashed: every message is where Apache says it is; unknown files are kept."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.base.hash import java_hash
from firearrow._native.store.log.record import Record
from firearrow._native.store.message_store import GetStatus, MessageStore, StoreConfig
from tests.golden import manifest, unpacked
from tests.support.stores import read, split

CONFIG = StoreConfig(
    segment_bytes=262144,
    queue_file_bytes=6000,
    index_slots=1000,
    index_entries=1000,
    lmq=True,
)
OURS = {"commitlog", "consumequeue", "index", "checkpoint", "abort", "abort.bak", "lock"}


class Golden:
    """One unpacked store and its manifest."""

    def __init__(self, name: str, folder: Path) -> None:
        self.root = unpacked(name, folder)
        self.manifest = manifest(name)

    def unknown_parts(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).digest()
            for path in self.root.rglob("*")
            if path.is_file() and path.relative_to(self.root).parts[0] not in OURS
        }

    def queues(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for topic in self.manifest["topics"]:
            for queue in topic["queues"]:
                yield topic["topic"], queue


@pytest.fixture(params=["store-apache", "store-apache-crashed"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


def text_of(host: bytes) -> str:
    return ".".join(str(byte) for byte in host[:-4]) + f":{int.from_bytes(host[-4:], 'big')}"


def assert_same(record: Record, expected: dict[str, Any]) -> None:
    assert record.physical_offset == expected["physicalOffset"]
    assert record.size == expected["storeSize"]
    assert record.topic == expected["topicInRecord"]
    assert record.queue_id == expected["queueIdInRecord"]
    assert record.flag == expected["flag"]
    assert record.sys_flag == expected["sysFlag"]
    assert record.born_timestamp == expected["bornTimestamp"]
    assert text_of(record.born_host) == expected["bornHost"]
    assert record.store_timestamp == expected["storeTimestamp"]
    assert text_of(record.store_host) == expected["storeHost"]
    assert record.reconsume_times == expected["reconsumeTimes"]
    assert record.prepared_offset == expected["preparedTransactionOffset"]
    assert record.properties == expected["properties"]
    assert record.body_crc == expected["bodyCrc"]
    assert len(record.body) == expected["storedBodyLength"]
    assert hashlib.sha256(record.body).hexdigest() == expected["storedBodySha256"]


def check_queues(store: MessageStore, golden: Golden) -> None:
    seen = 0
    for topic, queue in golden.queues():
        number = queue["queueId"]
        assert store.reader.min_offset(topic, number) == queue["minOffset"], topic
        assert store.reader.max_offset(topic, number) == queue["maxOffset"], topic
        records = read(store, topic, number)
        assert len(records) == len(queue["messages"]), topic
        for record, expected in zip(records, queue["messages"], strict=True):
            assert_same(record, expected)
            seen += 1
    assert seen > 400


def test_every_message_is_where_apache_says(golden: Golden) -> None:
    untouched = golden.unknown_parts()
    with MessageStore.open(golden.root, CONFIG) as store:
        check_queues(store, golden)
    assert golden.unknown_parts() == untouched


def test_queues_and_index_are_rebuilt_from_the_log(golden: Golden) -> None:
    for name in ("consumequeue", "index"):
        for path in sorted((golden.root / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    with MessageStore.open(golden.root, CONFIG) as store:
        check_queues(store, golden)
        check_keys(store, golden)


def check_keys(store: MessageStore, golden: Golden) -> None:
    checked: Counter[str] = Counter()
    for topic, queue in golden.queues():
        for expected in queue["messages"]:
            if topic != expected["topicInRecord"]:
                continue
            wanted = expected["physicalOffset"]
            keys = [(key, False) for key in (expected.get("keys") or "").split(" ") if key]
            keys += (
                [(expected["properties"]["UNIQ_KEY"], False)] if "UNIQ_KEY" in expected["properties"] else []
            )
            keys += [(expected["tags"], True)] if expected.get("tags") else []
            for key, tag in keys:
                records, _, _ = store.reader.query(topic, key, 2000, 0, 1 << 50, tag)
                assert wanted in {split(record)[0].physical_offset for record in records}, (topic, key, tag)
                checked["tag" if tag else "key"] += 1
    assert checked["key"] > 400
    assert checked["tag"] > 50


def test_every_key_and_tag_finds_its_message(golden: Golden) -> None:
    with MessageStore.open(golden.root, CONFIG) as store:
        check_keys(store, golden)


def test_tags_are_tested_on_the_queue_entry(golden: Golden) -> None:
    with MessageStore.open(golden.root, CONFIG) as store:
        tested = 0
        for topic, queue in golden.queues():
            if topic == "SCHEDULE_TOPIC_XXXX":  # its entries contain delivery times
                continue
            for tag in {expected["tags"] for expected in queue["messages"] if expected.get("tags")}:
                found: list[int] = []
                at = queue["minOffset"]
                while at < queue["maxOffset"]:
                    got = store.reader.get(topic, queue["queueId"], at, 32, tags=frozenset({java_hash(tag)}))
                    assert got.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE)
                    found += [record.physical_offset for record in split(got.body)]
                    at = got.next_offset
                assert found == [m["physicalOffset"] for m in queue["messages"] if m.get("tags") == tag]
                tested += 1
        assert tested > 10
