"""What a killed broker leaves past the ends of queues is lost by name; what appears only for a moment is not."""

import logging
import os
import struct
from pathlib import Path

import pytest

from firearrow._native.offline.mapped_files import MappedFiles
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.arguments import SourceArguments
from firearrow.spark_tools.jobs.planning import ranges
from firearrow.spark_tools.offline.store import OfflineStore
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.offline.tail_check import NO_RECORD, READS_MAX, check_tail
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from tests.spark.damaged_store import COUNT, QUEUE, entry_at, fill, opened, record_at, write_at
from tests.spark.stores import Golden
from tests.support.stores import open_store

OTHER = MessageQueue("T", "s", 1)
KEPT = 60


def never(seconds: float) -> None:
    raise AssertionError("no broker runs, so nothing is waited for")


def seen(root: Path, pause: object = never) -> list[tuple[QueueRange, str]]:
    return check_tail(OfflineStore("s", str(root), MappedFiles()), [QUEUE, OTHER], pause)  # type: ignore[arg-type]


def plan(root: Path, **given: str) -> BatchPlan:
    options = SourceOptions.of({"path": f"s={root}", **given}, BATCH)
    return BatchPlan(StoreSource((f"s={root}",)), options)


def rows(root: Path, **given: str) -> int:
    return sum(len(part) for group in plan(root, **given).parts() for part in group)


def cut_log(root: Path) -> None:
    """Within a record of QUEUE; those of OTHER follow the one before."""
    path, position, size = record_at(root, KEPT)
    os.truncate(path, position + size - 1)
    for later in sorted((root / "commitlog").iterdir()):
        if later > path:
            later.unlink()


def cut_entries(root: Path, number: int) -> bytes:
    """Nothing was written from this entry of QUEUE on: what was there."""
    path, position = entry_at(root, number)
    was = path.read_bytes()[position:]
    write_at(path, position, bytes(len(was)))
    return was


def mark(root: Path) -> None:
    (root / "abort").touch()


def test_a_clean_store_has_nothing_past_its_ends(root: Path) -> None:
    assert seen(root) == []
    assert rows(root) == 2 * COUNT


def test_entries_whose_records_were_cut_off_are_lost_by_name(root: Path) -> None:
    cut_log(root)
    lost = [QueueRange(QUEUE, KEPT, COUNT), QueueRange(OTHER, KEPT, COUNT)]
    assert seen(root) == [(part, NO_RECORD) for part in lost]
    with pytest.raises(DataLoss, match=r"80 messages are missing: T@s:0\[60\.\.100\).*; T@s:1\[60\.\.100\)"):
        rows(root)
    assert rows(root, failOnDataLoss="false") == 2 * KEPT
    reported: list[QueueRange] = []
    with opened(root) as reader:
        found = ranges(reader, SourceArguments(path=[f"s={root}"]), lambda part, why: reported.append(part))
    assert reported == lost
    assert [(part.start, part.end) for part in found] == [(0, KEPT)] * 2


def test_reading_less_reports_nothing(root: Path) -> None:
    cut_log(root)
    upto = '{"T": {"s": {"0": %d, "1": %d}}}'
    assert rows(root, endingOffsets=upto % (KEPT, KEPT - 1)) == 2 * KEPT - 1
    with pytest.raises(DataLoss, match=r"1 messages are missing: T@s:0\[60\.\.61\): beyond the end"):
        rows(root, endingOffsets=upto % (KEPT + 1, KEPT))
    one = SourceArguments(path=[f"s={root}"], offsets='{"T": {"s": {"0": [10, 20]}}}')
    with opened(root) as reader:
        (part,) = ranges(reader, one, lambda part, why: pytest.fail(f"{part}: {why}"))
    assert (part.start, part.end) == (10, 20)


def test_what_a_running_broker_shows_for_moments_is_nothing(root: Path) -> None:
    mark(root)
    path, position, size = record_at(root, COUNT - 1)
    was = path.read_bytes()[position : position + size]
    write_at(path, position, bytes(size))
    pauses: list[float] = []

    def written(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            write_at(path, position, was)

    assert check_tail(OfflineStore("s", str(root), MappedFiles()), [QUEUE, OTHER], written) == []
    assert len(pauses) < READS_MAX


def test_a_store_that_is_written_all_the_time_has_no_lost_tail(tmp_path: Path) -> None:
    """What is new in each check is not what was seen before."""
    store = open_store(tmp_path)
    fill(store, 5)
    written = iter(range(5, 1000))

    def more(seconds: float) -> None:
        fill(store, 1, start=next(written))

    mark(tmp_path)
    assert seen(tmp_path, more) == []
    store.close()


def test_torn_bytes_at_the_end_are_warned_of(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    physical, size = struct.unpack_from(
        ">qi",
        (root / "consumequeue" / "T" / "1" / entry_at(root, COUNT - 1)[0].name).read_bytes(),
        entry_at(root, COUNT - 1)[1],
    )
    path, position, _ = record_at(root, COUNT - 1)
    whole = path.read_bytes()
    base = int(path.name)
    behind_all = physical + size - base
    write_at(path, behind_all, whole[position : position + 40])
    with caplog.at_level(logging.INFO, "firearrow.spark"):
        assert rows(root) == 2 * COUNT
    assert f"bytes that are not a record from {base + behind_all} on" in caplog.text


def test_apache_s_stores_have_nothing_that_is_lost(golden: Golden) -> None:
    name = golden.root.name
    with StoreSource((f"{name}={golden.root}",)).open() as reader:
        queues = [queue for topic in reader.topics() for queue in reader.queues(topic)]
        assert reader.tail_losses(queues) == []
