"""Offsets of one member in a file: Java's format, both ways; after a crash, foreign writes, or damage."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from firearrow.client.base.errors import OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.local_offset_store import LocalOffsetStore
from firearrow.client.rebalance.offset_store import NOT_FOUND, ReadOffset
from tests.interop.toolchain import java_class_path, need

ODD = MessageQueue('T"opic\\é', "broker-a", 0)
FAR, NEW = MessageQueue("Topic", "broker-a", 1), MessageQueue("Topic", "broker-b", 3)
JAVA = (
    '{\n\t"offsetTable":{\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T\\"opic\\\\é"'
    '\n\t\t}:5,\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"Topic"\n\t\t}:9007199254740993'
    ',\n\t\t{\n\t\t\t"brokerName":"broker-b",\n\t\t\t"queueId":3,\n\t\t\t"topic":"Topic"\n\t\t}:0\n\t}\n}'
)
"""Written by Java 5.5.0."""
TABLE = {ODD: 5, FAR: 9007199254740993, NEW: 0}


def store_in(folder: Path) -> LocalOffsetStore:
    return LocalOffsetStore(folder, "10.0.0.1@DEFAULT", "group")


def store_with(folder: Path, text: str, backup: str | None = None) -> LocalOffsetStore:
    """A store with these files."""
    store = store_in(folder)
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.write_text(text)
    if backup is not None:
        store.path.with_name("offsets.json.bak").write_text(backup)
    return store


def of_one(offset: int) -> str:
    return f'{{"offsetTable":{{{{"brokerName":"broker-a","queueId":1,"topic":"Topic"}}:{offset}}}}}'


async def test_java_s_file_is_read_from_java_s_path(tmp_path: Path) -> None:
    store = store_with(tmp_path, JAVA)
    assert store.path == tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    await store.load()
    assert store.snapshot() == TABLE
    assert store.snapshot("Topic") == {FAR: TABLE[FAR], NEW: 0}


async def test_what_is_written_is_java_s_file_to_the_byte(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for queue, offset in TABLE.items():
        store.update(queue, offset)
    await store.persist_all(list(TABLE))
    assert store.path.read_text() == JAVA
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["offsets.json"]


@pytest.mark.interop
def test_java_reads_what_we_wrote(tmp_path: Path) -> None:
    need(partial(java_class_path, "client5"))
    store, program = store_with(tmp_path, JAVA), tmp_path / "Read.java"
    program.write_text("""
        import java.nio.file.*;
        import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
        public class Read {
            public static void main(String[] files) throws Exception {
                String text = new String(Files.readAllBytes(Paths.get(files[0])), "UTF-8");
                OffsetSerializeWrapper.fromJson(text, OffsetSerializeWrapper.class).getOffsetTable().forEach(
                    (at, offset) -> System.out.println(at.getBrokerName() + " " + at.getQueueId() + " " + offset));
            }
        }""")
    command = ["java", "-cp", java_class_path("client5"), str(program), str(store.path)]
    output = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert {"broker-a 0 5", "broker-a 1 9007199254740993", "broker-b 3 0"} <= set(output)


async def test_each_way_to_read_goes_where_it_says(tmp_path: Path) -> None:
    store = store_with(tmp_path, of_one(7))
    assert await store.read(FAR, ReadOffset.MEMORY) == NOT_FOUND
    assert await store.read(FAR, ReadOffset.MEMORY_FIRST) == 7
    store.update(FAR, 9)
    assert await store.read(FAR, ReadOffset.MEMORY) == await store.read(FAR, ReadOffset.MEMORY_FIRST) == 9
    assert await store.read(FAR, ReadOffset.STORE) == 7
    assert store.cached_offset(FAR) == 7, "what is read from the store is what memory holds"
    assert await store.read(NEW, ReadOffset.STORE) == NOT_FOUND


async def test_what_the_file_says_of_other_queues_stays(tmp_path: Path) -> None:
    store = store_with(tmp_path, JAVA)
    store.update(FAR, 8)
    store.update(NEW, 8)
    await store.persist_all([FAR])
    again = store_in(tmp_path)
    await again.load()
    assert again.snapshot() == TABLE | {FAR: 8}
    assert store.snapshot() == {FAR: 8, NEW: 8}, "memory keeps what was not written"


async def test_another_process_may_write_between(tmp_path: Path) -> None:
    store = store_with(tmp_path, of_one(7))
    await store.load()
    store_with(tmp_path, of_one(1000))
    assert await store.read(FAR, ReadOffset.STORE) == 1000


async def test_without_a_queue_or_news_nothing_is_written(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.update(FAR, 5)
    await store.persist_all([])
    await store.persist(NEW)
    assert not store.path.exists()
    await store.persist(FAR)
    before = store.path.stat()
    await store.persist(FAR)
    assert store.path.stat() == before


async def test_the_state_before_is_kept_beside(tmp_path: Path) -> None:
    store = store_with(tmp_path, of_one(7))
    store.update(FAR, 8)
    await store.persist(FAR)
    assert store.path.with_name("offsets.json.bak").read_text() == of_one(7)


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"offsetTable":5}', of_one(1 << 63), "\0" * 100])
async def test_what_is_damaged_is_replaced_by_the_state_before(tmp_path: Path, damage: str) -> None:
    store = store_with(tmp_path, damage, backup=of_one(7))
    await store.load()
    assert store.snapshot() == {FAR: 7}
    store.update(FAR, 8)
    await store.persist(FAR)
    assert store.path.with_name("offsets.json.bak").read_text() == of_one(7), (
        "damage never becomes the back-up"
    )
    assert await store_in(tmp_path).read(FAR, ReadOffset.STORE) == 8


async def test_a_missing_file_is_replaced_by_the_state_before(tmp_path: Path) -> None:
    store = store_with(tmp_path, "", backup=of_one(7))
    store.path.unlink()
    assert await store.read(FAR, ReadOffset.STORE) == 7


async def test_with_both_damaged_there_is_no_start_and_nothing_is_written(tmp_path: Path) -> None:
    store = store_with(tmp_path, "{", backup="{")
    with pytest.raises(OffsetUnknown, match=r"offsets\.json\.bak.*repair the offsets or delete both files"):
        await store.load()
    assert await store.read(FAR, ReadOffset.STORE) == NOT_FOUND
    store.update(FAR, 8)
    await store.persist(FAR)
    assert store.path.read_text() == "{"


async def test_a_path_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store = LocalOffsetStore(tmp_path / "file", "id", "group")
    store.update(FAR, 8)
    await store.persist(FAR)
    assert "offsets were not written" in caplog.text


async def test_a_crash_before_the_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_with(tmp_path, of_one(7))
    store.update(FAR, 8)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    await store.persist(FAR)
    assert store.path.read_text() == of_one(7)
    assert "No space left" in caplog.text
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]
    monkeypatch.undo()
    await store.persist(FAR)
    shutil.copy(store.path, tmp_path / "copy")
    assert await store_in(tmp_path).read(FAR, ReadOffset.STORE) == 8
