"""Retention with a manual clock and a simulated disk: what is deleted, when, and what stays."""

import asyncio
import errno
import mmap
import os
import time
from pathlib import Path

import pytest

from firearrow._native.store.get_message import GetStatus
from firearrow._native.store.log.results import PutRefused, PutStatus
from firearrow.broker.base.config import ConfigError, apply
from firearrow.broker.base.disk_space import DiskUse
from firearrow.broker.base.options import Options
from firearrow.broker.services.retention import HOUR_MS
from tests.soak.retention_harness import RetentionHarness
from tests.support.stores import needs_zeroing, open_store, put, read, split


def test_expired_segments_are_deleted_in_the_configured_hour(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.rounds()
    assert harness.segments() == before[4:]
    assert harness.store.min_physical == before[4]


def test_what_compaction_has_not_copied_is_not_deleted(tmp_path: Path) -> None:
    """Not even where the disk is full."""
    harness = RetentionHarness(tmp_path, hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.kept, harness.use = before[2] + 1, DiskUse(0.95, 0.95, 0.95)
    harness.rounds(3)
    assert harness.segments() == before[2:]


def test_nothing_is_deleted_in_another_hour(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=5, delete_when="04;23")
    harness.fill()
    harness.age(1000 * HOUR_MS)
    before = harness.segments()
    harness.rounds(3)
    assert harness.segments() == before


def test_segments_are_deleted_in_every_hour_of_the_list(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=23, delete_when="04;23")
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.rounds()
    assert len(harness.segments()) == len(before) - 4


def test_a_younger_segment_stops_the_round(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4, reserved_hours=2)
    harness.fill()
    harness.age(2 * HOUR_MS)
    before = harness.segments()
    young = tmp_path / "commitlog" / f"{before[3]:020d}"
    at = (harness.clock.now_ms() - 2 * HOUR_MS + 1) * 1_000_000
    os.utime(young, ns=(at, at))
    harness.rounds(3)
    assert harness.segments() == before[3:]


def test_the_active_segment_stays(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4, delete_files_max=1000)
    harness.fill()
    harness.age(1000 * HOUR_MS)
    last = harness.segments()[-1]
    harness.rounds()
    assert harness.segments() == [last]
    put(harness.store, b"more")
    harness.store.write()
    assert read(harness.store)[-1].body == b"more"


def test_a_manual_run_deletes_expired_segments_at_any_hour(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=12, delete_files_max=2)
    harness.fill()
    before = harness.segments()
    harness.rounds(manual=True)
    assert harness.segments() == before
    harness.age(73 * HOUR_MS)
    harness.rounds(3, manual=True)
    assert harness.segments() == before[6:]


def test_the_queues_follow_and_readers_get_the_first_offset(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    harness.rounds()
    for queue_id in (0, 1):
        records = read(harness.store, "T", queue_id)
        first = harness.store.reader.min_offset("T", queue_id)
        assert first > 0
        assert [record.queue_offset for record in records] == list(range(first, 50))
        assert records[0].physical_offset >= harness.store.min_physical
        assert harness.queue_files(queue_id)[0] == first // 10 * 200
        got = harness.store.reader.get("T", queue_id, first - 1, 32)
        assert got.status is GetStatus.OFFSET_TOO_SMALL
        assert got.next_offset == first
    assert sorted(set(harness.moved)) == [("T", 0), ("T", 1)]


def test_readers_get_the_first_offset_before_the_queue_is_cleaned(tmp_path: Path) -> None:
    """The log's start has moved, and the queue still begins with the deleted records."""
    harness = RetentionHarness(tmp_path)
    harness.fill()
    segment = harness.store.cleaner.detach_segment(modified_before_ms=harness.clock.now_ms())
    assert segment is not None
    segment.discard(True)
    assert harness.store.reader.min_offset("T", 0) == 0
    got = harness.store.reader.get("T", 0, 0, 32)
    assert (got.status, got.count) == (GetStatus.OFFSET_TOO_SMALL, 0)
    first = split(harness.store.reader.get("T", 0, got.next_offset, 1).body)[0]
    assert (first.queue_offset, first.physical_offset >= harness.segments()[0]) == (got.next_offset, True)
    assert got.next_offset == got.min_offset == harness.store.reader.min_offset("T", 0) > 0


def test_a_mapping_of_a_deleted_segment_can_still_be_read(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path)
    harness.fill()
    before = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    with (tmp_path / "commitlog" / f"{0:020d}").open("rb") as file:
        outside = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    segment = harness.store.cleaner.detach_segment(modified_before_ms=harness.clock.now_ms())
    assert segment is not None
    inside = memoryview(segment)
    segment.discard(True)
    assert bytes(inside) == before
    assert outside[:] == before


def test_deleted_segments_stay_deleted(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    harness.rounds()
    firsts = [harness.store.reader.min_offset("T", queue_id) for queue_id in (0, 1)]
    harness.store.abandon()
    with open_store(tmp_path) as store:
        assert [store.reader.min_offset("T", queue_id) for queue_id in (0, 1)] == firsts
        assert len(read(store)) == 50 - firsts[0]


def test_an_emptied_queue_keeps_counting(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4, delete_files_max=1000)
    harness.fill(4, topic="idle")
    harness.fill()
    harness.age(73 * HOUR_MS)
    harness.rounds()
    assert harness.store.reader.min_offset("idle", 0) == harness.store.reader.max_offset("idle", 0) == 2
    harness.store.close()
    with open_store(tmp_path) as store:
        assert store.reader.max_offset("idle", 0) == 2
        assert put(store, b"3", "idle").queue_offset == 2


def test_index_files_of_deleted_messages_are_deleted(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    for number in range(100):
        put(
            harness.store,
            b"%0200d" % number,
            properties=b"KEYS\x01k%d\x02" % number,
            now_ms=harness.clock.now_ms(),
        )
        harness.store.write()
    harness.store.flush_queues()
    harness.age(73 * HOUR_MS)
    files = len(list((tmp_path / "index").iterdir()))
    harness.rounds()
    assert 0 < len(list((tmp_path / "index").iterdir())) < files
    assert harness.store.reader.query("T", "k0", 32, 0, 1 << 60)[0] == []
    assert len(harness.store.reader.query("T", "k99", 32, 0, 1 << 60)[0]) == 1


def test_unsynced_segments_are_not_deleted(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    for number in range(100):
        put(harness.store, b"%0200d" % number)
        harness.store.write()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.rounds()
    assert harness.segments() == before
    harness.store.flush_queues()
    harness.rounds()
    assert harness.segments() == before[4:]


# ---- recycled segments ----


def test_one_expired_segment_of_a_round_is_recycled(tmp_path: Path) -> None:
    needs_zeroing(tmp_path)
    harness = RetentionHarness(tmp_path / "store", hour=4, delete_files_max=2)
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = {at: harness.inode(at) for at in harness.segments()}
    harness.rounds()
    assert harness.segments() == [*before][2:]
    assert harness.spare == bytes(4096)
    harness.rounds()
    assert harness.segments() == [*before][4:], "one is enough"
    harness.fill(20)
    new = [at for at in harness.segments() if at not in before]
    assert [harness.inode(at) for at in new].count(before[0]) == 1
    assert harness.spare is None
    records = read(harness.store)
    assert [record.queue_offset for record in records] == list(range(records[0].queue_offset, 60))


def test_readers_of_an_expired_segment_can_continue(tmp_path: Path) -> None:
    needs_zeroing(tmp_path)
    harness = RetentionHarness(tmp_path / "store", hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    first, second = (harness.path(at) for at in harness.segments()[:2])
    before = first.read_bytes()
    number = second.stat().st_ino
    with first.open("rb") as file:
        outside = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    harness.rounds()
    assert outside[:] == before
    assert (harness.folder / "spare").stat().st_ino == number, "the next one, which has no reader"


@pytest.mark.parametrize("share", [0.76, 0.86, 0.91])
def test_on_a_filling_disk_all_segments_are_deleted(tmp_path: Path, share: float) -> None:
    needs_zeroing(tmp_path)
    harness = RetentionHarness(tmp_path / "store", hour=4, delete_files_max=2)
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.rounds()
    assert harness.spare is not None
    harness.use = DiskUse(share, 0.2, 0.2)
    harness.rounds()
    assert harness.spare is None
    assert harness.segments() == before[4:]


def test_a_stop_leaves_no_spare_file(tmp_path: Path) -> None:
    needs_zeroing(tmp_path)
    harness = RetentionHarness(tmp_path / "store", hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    harness.rounds()
    assert harness.spare is not None
    harness.store.close()
    assert harness.spare is None


# ---- the disk ----


def test_above_the_first_ratio_expired_segments_are_deleted_at_any_hour(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path)
    harness.fill()
    harness.use = DiskUse(0.76, 0.2, 0.2)
    before = harness.segments()
    harness.rounds()
    assert harness.segments() == before, "nothing is expired"
    harness.age(73 * HOUR_MS)
    harness.use = DiskUse(0.75, 0.2, 0.2)
    harness.rounds()
    assert harness.segments() == before, "the ratio is not exceeded"
    harness.use = DiskUse(0.2, 0.76, 0.2)
    harness.rounds()
    assert harness.segments() == before[4:]


def test_above_the_second_ratio_all_are_deleted_if_allowed(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, clean_forcibly=False)
    harness.fill()
    harness.use = DiskUse(0.86, 0.2, 0.2)
    before = harness.segments()
    harness.rounds()
    assert harness.segments() == before
    harness.config.update({"cleanFileForciblyEnable": "true"})
    harness.rounds()
    assert harness.segments() == before[4:]
    put(harness.store, b"taken")


def test_above_the_third_ratio_messages_are_refused(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path)
    harness.fill()
    harness.use = DiskUse(0.91, 0.3, 0.3)
    harness.rounds()
    with pytest.raises(PutRefused) as refused:
        put(harness.store, b"refused")
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert harness.store.full == "CL:  0.91 CQ:  0.30 INDEX:  0.30"
    assert read(harness.store), "readers are served"
    harness.use = DiskUse(0.86, 0.3, 0.3)
    harness.rounds()
    assert harness.store.full, "while segments are deleted by force"
    harness.use = DiskUse(0.85, 0.3, 0.3)
    harness.rounds()
    assert harness.store.full is None
    put(harness.store, b"taken")


def test_ratios_beyond_apaches_limits_are_clamped(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, disk_full_percent=100, disk_force_percent=0)
    harness.use = DiskUse(0.30, 0.3, 0.3)
    harness.fill()
    before = harness.segments()
    harness.rounds()
    assert harness.segments() == before
    harness.use = DiskUse(0.91, 0.3, 0.3)
    harness.rounds()
    assert harness.store.full


def test_a_segment_that_cannot_be_deleted_is_retried_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = RetentionHarness(tmp_path, redelete_interval_ms=0)
    harness.fill()
    harness.age(73 * HOUR_MS)
    harness.use = DiskUse(0.76, 0.2, 0.2)
    before = harness.segments()
    unlink, tries = os.unlink, 0

    def failing(path: str) -> None:
        nonlocal tries
        tries += Path(path).name == f"{before[0]:020d}"
        if tries < 3 and Path(path).name == f"{before[0]:020d}":
            raise PermissionError(errno.EPERM, "not permitted", path)
        unlink(path)

    async def rounds() -> None:
        retention = harness.retention()
        for _ in range(2):
            with pytest.raises(PermissionError):
                await retention.round()
            assert harness.segments() == before
        await retention.round()
        await retention.stop()

    monkeypatch.setattr(os, "unlink", failing)
    asyncio.run(rounds())
    assert harness.segments() == before[5:]


def test_if_the_disk_cannot_be_measured_nothing_changes(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, hour=4)
    harness.fill()
    harness.age(73 * HOUR_MS)
    before = harness.segments()
    harness.use = OSError(errno.EIO, "no answer")
    with pytest.raises(OSError, match="no answer"):
        harness.rounds()
    assert harness.segments() == before


@pytest.mark.parametrize(
    ("text", "hours"), [("04", {4}), ("0;23", {0, 23}), ("4;", {4}), ("00;01;12", {0, 1, 12})]
)
def test_hours(text: str, hours: set[int]) -> None:
    assert apply(Options(), {"deleteWhen": text}).delete_hours == hours


@pytest.mark.parametrize("text", ["", "24", "-1", "4,5", "four", ";", "4;;5", "0" * 1000, "٤x"])
def test_invalid_hours_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen must be hours 0 to 23"):
        apply(Options(), {"deleteWhen": text})


def trim(harness: RetentionHarness, queue_id: int, offset: int) -> None:
    physical_offset = harness.store.cleaner.trim_queue("T", queue_id, offset)
    assert physical_offset > 0
    harness.trimmed.note("T", queue_id, physical_offset)


def freed(harness: RetentionHarness, count: int = 1) -> None:
    async def run() -> None:
        retention = harness.retention()
        retention.free_trimmed()
        try:
            for _ in range(count):
                await retention.round()
        finally:
            await retention.stop()

    asyncio.run(run())


def test_trimmed_segments_are_deleted_up_to_the_first_message_of_any_queue(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, delete_files_max=1000)
    harness.fill()
    before = harness.segments()
    trim(harness, 0, 50)
    freed(harness)
    assert harness.segments() == before, "queue 1 has a message in the first one"
    assert len(harness.queue_files(0)) == 1
    trim(harness, 1, 30)
    [(_, physical_offset)] = [each for each in harness.trimmed.items() if each[0] == ("T", 1)]
    freed(harness)
    assert harness.segments() == [base for base in before if base + 4096 > physical_offset]
    assert [record.queue_offset for record in read(harness.store, "T", 1)] == list(range(30, 50))
    put(harness.store, b"more", "T", 0)
    harness.store.write()
    assert [record.queue_offset for record in read(harness.store, "T", 0)] == [50]


def test_a_trim_is_forgotten_when_the_log_starts_there(tmp_path: Path) -> None:
    harness = RetentionHarness(tmp_path, delete_files_max=1000)
    harness.fill()
    trim(harness, 0, 20)
    trim(harness, 1, 45)
    freed(harness, 2)
    assert dict(harness.trimmed.items()).keys() == {("T", 0), ("T", 1)}
    trim(harness, 0, 50)
    trim(harness, 1, 50)
    harness.fill()
    freed(harness, 2)
    trim(harness, 0, 100)
    freed(harness, 2)
    assert all(at > harness.store.min_physical for _, at in harness.trimmed.items())
    for queue_id in (0, 1):
        first = harness.store.reader.min_offset("T", queue_id)
        assert [record.queue_offset for record in read(harness.store, "T", queue_id)] == list(
            range(first, 100)
        )


def test_it_goes_on_after_any_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = RetentionHarness(tmp_path, clean_interval_ms=10)
    harness.use = MemoryError()

    async def run() -> None:
        retention = harness.retention()
        retention.start()
        async with asyncio.timeout(20):
            while "will try again" not in caplog.text:
                await asyncio.to_thread(time.sleep, 0.01)
            harness.use = DiskUse(0.3, 0.3, 0.3)
            while retention.use != harness.use:
                await asyncio.to_thread(time.sleep, 0.01)
        await retention.stop()

    asyncio.run(run())
