"""Messages that only the log has are lost by name; those of deleted topics and expired ones are not missed."""

import os
import shutil
from pathlib import Path

import orjson
import pytest

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.arguments import SourceArguments
from firearrow.spark_tools.jobs.planning import ranges
from firearrow.spark_tools.offline.missing_entries import NO_ENTRY, NO_ENTRY_BEFORE, check_entries
from firearrow.spark_tools.offline.store import OfflineStore
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.offline.tail_check import READS_MAX
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from tests.spark.damaged_store import COUNT, QUEUE, entry_at, fill, opened, write_at
from tests.spark.stores import Golden
from tests.support.stores import QUEUE_FILE_BYTES, open_store

OTHER = MessageQueue("T", "s", 1)
PER_FILE = QUEUE_FILE_BYTES // 20


def queue_folder(root: Path, queue: MessageQueue = QUEUE) -> Path:
    return root / "consumequeue" / "T" / str(queue.queue_id)


def declare(root: Path, queues: int = 2) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": queues}}}
    (root / "config" / "topics.json").write_bytes(orjson.dumps(table))


def parts(root: Path) -> list[QueueRange]:
    with opened(root) as reader:
        bounds = reader.bounds(reader.queues("T"))
        return [QueueRange(queue, *bounds[queue]) for queue in sorted(bounds)]


def missing(root: Path, pause: object = None) -> list[tuple[QueueRange, str]]:
    store = OfflineStore("s", str(root), MappedFiles())
    return check_entries(store, parts(root), pause)  # type: ignore[arg-type]


def rows(root: Path, **given: str) -> int:
    options = SourceOptions.of({"path": f"s={root}", **given}, BATCH)
    plan = BatchPlan(StoreSource((f"s={root}",)), options)
    return sum(len(part) for group in plan.parts() for part in group)


def test_a_whole_store_misses_nothing(root: Path) -> None:
    assert missing(root) == []


def test_a_queue_folder_that_is_gone(root: Path) -> None:
    declare(root)
    shutil.rmtree(queue_folder(root))
    assert missing(root) == [(QueueRange(QUEUE, 0, COUNT), NO_ENTRY)]
    with pytest.raises(
        DataLoss, match=r"100 messages are missing: T@s:0\[0\.\.100\): .*start the broker once"
    ):
        rows(root)
    assert rows(root, failOnDataLoss="false") == COUNT
    reported: list[QueueRange] = []
    with opened(root) as reader:
        ranges(reader, SourceArguments(path=[f"s={root}"]), lambda part, why: reported.append(part))
    assert reported == [QueueRange(QUEUE, 0, COUNT)]
    with open_store(root):
        pass
    assert rows(root) == 2 * COUNT, "the broker has added the entries"


def test_a_queue_that_only_the_log_knows(root: Path) -> None:
    shutil.rmtree(queue_folder(root))
    assert missing(root) == [(QueueRange(QUEUE, 0, COUNT), NO_ENTRY)]
    assert rows(root, assign='{"T": [1]}') == COUNT


@pytest.mark.parametrize("kept", [1, PER_FILE + 1, COUNT - 1])
@pytest.mark.parametrize("how", ["short", "zeros"])
def test_a_queue_that_ends_too_early(root: Path, kept: int, how: str) -> None:
    path, position = entry_at(root, kept)
    for later in sorted(path.parent.iterdir()):
        if later > path:
            later.unlink()
    if how == "short":
        os.truncate(path, position)
    else:
        write_at(path, position, bytes(path.stat().st_size - position))
    assert missing(root) == [(QueueRange(QUEUE, kept, COUNT), NO_ENTRY)]
    assert rows(root, failOnDataLoss="false") == COUNT + kept


def test_a_queue_whose_first_file_is_gone(root: Path) -> None:
    entry_at(root, 0)[0].unlink()
    lost = QueueRange(QUEUE, 0, PER_FILE)
    assert missing(root) == [(lost, NO_ENTRY_BEFORE)]
    offsets = '{"T": {"s": {"0": %d}}}'
    assert rows(root, startingOffsets=offsets % (PER_FILE + 1)) == 2 * COUNT - PER_FILE - 1


def test_less_is_read_and_less_is_missed(root: Path) -> None:
    path, position = entry_at(root, COUNT - 5)
    os.truncate(path, position)
    upto = '{"T": {"s": {"0": %d, "1": %d}}}'
    assert rows(root, endingOffsets=upto % (COUNT - 6, COUNT)) == 2 * COUNT - 6
    with pytest.raises(DataLoss, match=r"5 messages are missing: T@s:0\[95\.\.100\)"):
        rows(root, endingOffsets=upto % (COUNT - 5, COUNT))


def test_all_queues_are_gone(root: Path) -> None:
    declare(root)
    shutil.rmtree(root / "consumequeue")
    assert missing(root) == [(QueueRange(QUEUE, 0, COUNT), NO_ENTRY), (QueueRange(OTHER, 0, COUNT), NO_ENTRY)]


def test_a_deleted_topic_is_not_missed(root: Path) -> None:
    with open_store(root) as store:
        end = store.written
        store.drop_topic("T")
    declare(root)
    deleted = {"topics": [{"topic": "T", "logEnd": end, "timestamp": 1}]}
    (root / "config" / "deletedTopics.json").write_bytes(orjson.dumps(deleted))
    assert missing(root) == []


def test_the_messages_of_a_deleted_topic_are_older_than_the_first_entries(root: Path) -> None:
    with open_store(root) as store:
        store.drop_topic("T")
        fill(store, 3)
    declare(root)
    assert missing(root) == []
    shutil.rmtree(queue_folder(root))
    assert missing(root) == [(QueueRange(QUEUE, 0, 3), NO_ENTRY)]


def test_expired_messages_are_not_missed(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[0].unlink()
    assert missing(root) == []
    shutil.rmtree(queue_folder(root, OTHER))
    [(lost, why)] = missing(root)
    assert (lost.queue, lost.end, why) == (OTHER, COUNT, NO_ENTRY)
    assert 0 < lost.start < COUNT


def test_a_running_broker_adds_them_later(root: Path) -> None:
    path, position = entry_at(root, COUNT - 1)
    was = path.read_bytes()[position : position + 20]
    write_at(path, position, bytes(20))
    (root / "abort").touch()
    pauses: list[float] = []

    def entered(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            write_at(path, position, was)

    assert missing(root, entered) == []
    assert len(pauses) == 2
    write_at(path, position, bytes(20))
    assert missing(root, pauses.append) == [(QueueRange(QUEUE, COUNT - 1, COUNT), NO_ENTRY)]
    assert len(pauses) == 2 + READS_MAX


def test_apache_s_stores_miss_nothing(golden: Golden) -> None:
    name = golden.root.name
    with StoreSource((f"{name}={golden.root}",)).open() as reader:
        bounds = reader.bounds([queue for topic in reader.topics() for queue in reader.queues(topic)])
        assert reader.missing_entries([QueueRange(queue, *bounds[queue]) for queue in bounds]) == []
